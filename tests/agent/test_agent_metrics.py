"""What /metrics says of an agent, held against what it did on a live session without a kernel."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from ebpfprof.agent import service
from ebpfprof.agent.identity.kubernetes import PodNames
from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.metrics import AgentMetrics
from ebpfprof.agent.service import Agent
from ebpfprof.agent.settings import RingSettings
from ebpfprof.agent.settings_file import parsed
from ebpfprof.discovery.processes import GoProcess
from ebpfprof.errors import CorruptBinary
from ebpfprof.profile.losses import Loss
from tests.agent.node import DROP_DASH
from tests.agent.test_pods import MadeUpSource
from tests.agent.test_service import into, running
from tests.continuous.loops import run, until

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def values_of(agent: Agent) -> Values:
    """The metrics by name and labels."""
    answer = await AgentMetrics(agent)(Request({"type": "http", "headers": []}))
    families = text_string_to_metric_families(bytes(answer.body).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(values: Values, name: str, **labels: str) -> float:
    return values[f"ebpfprof_{name}", tuple(sorted(labels.items()))]


@pytest.fixture(autouse=True)
def _no_round_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SURVEY_S", 3600.0)


def test_what_was_recorded_is_reported(tmp_path: Path, shop: GoProcess) -> None:
    async def work() -> None:
        ring = RingSettings(path=str(tmp_path / "ring"), keep_free=0)
        settings = replace(
            into(tmp_path / "out"),
            ring=ring,
            metrics_services=3,
            max_node_overhead=50,
            max_memory=1 << 40,
        )
        async with running(settings, shop) as made:
            agent, live = made.agent, made.live
            live.targets[shop.pid].has_lengths = True
            live.targets[shop.pid].work(3)
            live.lost = [Loss("waits_full", "x", 4)]
            live.costs_ns[shop.pid] = 1e9
            agent.rounds._begun_s -= 100
            agent.rounds._windows_begun = -1e9, 0.0
            await agent.rounds.turn()
            await until(lambda: all(each.counters().sent == 1 for each in agent.sinks.all))
            agent.rounds.figures.spent_on_self = 0.25
            found = await values_of(agent)
            of = {"service": "dash", "namespace": ""}
            events = 4  # three, and one that each target has
            assert value(found, "agent_processes", state="recorded") == 1
            assert value(found, "agent_rounds_total") == 1
            assert value(found, "agent_windows_total") == 1
            assert value(found, "agent_events_total", kind="block") == events
            waited_s = pytest.approx(3.01e-6)
            assert value(found, "agent_recorded_seconds_total", kind="block") == waited_s
            assert value(found, "delay_seconds_total", kind="block", **of) == waited_s
            assert value(found, "cpu_seconds_total", **of) > 0
            assert value(found, "wait_seconds_bucket", kind="block", le="1.024e-06", **of) == 3
            assert value(found, "wait_seconds_count", kind="block", **of) == 3
            assert value(found, "wait_seconds_sum", kind="block", **of) == pytest.approx(3e-6)
            assert 0 < value(found, "service_recorded_seconds_total", **of) < 60
            assert value(found, "agent_losses_total", reason="waits_full") == 4
            assert value(found, "agent_losses_total", reason="stacks_full") == 0
            processors = agent.rounds.processors
            ratio = value(found, "agent_node_overhead_ratio", of="targets")
            assert ratio == pytest.approx(0.01 / processors, rel=0.1)
            assert value(found, "agent_node_overhead_ratio", of="limit") == 0.5
            assert value(found, "agent_node_overhead_ratio", of="agent") == 0.25 / processors
            assert value(found, "agent_memory_bytes", of="limit") == 1 << 40
            assert 1 << 20 < value(found, "agent_memory_bytes", of="agent") < 1 << 40
            assert value(found, "agent_cpu_seconds_total") > 0
            for sink in ("ring", "out"):
                assert value(found, "sink_sent_total", sink=sink) == 1
                assert value(found, "sink_waiting", sink=sink) == 0
            kinds = 3
            assert value(found, "ring_files") == kinds
            assert value(found, "ring_bytes") >= kinds * 4096
            assert value(found, "ring_notes_lost_total") == 0
            oldest_s = value(found, "ring_oldest_timestamp_seconds")
            newest_s = value(found, "ring_newest_timestamp_seconds")
            assert time.time() - 60 < oldest_s < newest_s < time.time() + 1
            assert value(found, "agent_config_last_reload_successful") == 1

    run(work())


def test_what_was_not_recorded_is_reported(tmp_path: Path, three: list[GoProcess]) -> None:
    async def work() -> None:
        async with running(into(tmp_path, max_processes=1)) as made:
            agent, live = made.agent, made.live
            live.refusals = {three[0].pid: CorruptBinary("It is broken.")}
            for each in three:
                made.join(each)
            agent.roster.survey()
            agent.roster.too_young = 7
            await agent.rounds.turn()
            await until(lambda: bool(live.opened))
            agent.is_config_right = False
            found = await values_of(agent)
            states = {
                state: value(found, "agent_processes", state=state)
                for state in ("recorded", "starting", "places", "budget", "young", "unsupported")
            }
            assert states == {
                "recorded": states["recorded"],
                "starting": 1 - states["recorded"],
                "places": 2,
                "budget": 0,
                "young": 7,
                "unsupported": 0,
            }
            assert value(found, "agent_config_last_reload_successful") == 0
            rules = replace(agent.settings, rules=parsed(DROP_DASH, "a").rules)
            await agent._use(rules, ())
            agent.rounds.figures.unwatched_s["rules"] += 2.5
            (sink,) = agent.sinks.all
            sink._counts.dropped["queue_full"] = 5
            sink._counts.retried = 6
            source = MadeUpSource({"c" * 64: PodNames(pod="till")}).opened()
            source.ask()
            source.counts.pods = 3
            agent.pods = Pods("/nowhere", [source])
            found = await values_of(agent)
            assert value(found, "agent_processes", state="rules") == 3
            assert value(found, "agent_processes", state="recorded") == 0
            assert value(found, "agent_unwatched_seconds_total", reason="rules") == 2.5
            assert value(found, "sink_dropped_total", sink="out", reason="queue_full") == 5
            assert value(found, "sink_retries_total", sink="out") == 6
            for outcome, count in (("answered", 1), ("failed", 0)):
                of = {"source": "made_up", "outcome": outcome}
                assert value(found, "pod_source_requests_total", **of) == count
            assert value(found, "pod_source_pods", source="made_up") == 3

    run(work())
