"""The agent explains a real program: log, metrics, sinks and `history` have what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.running import RunningAgent, settings
from tests.agent.test_backends import table
from tests.backends.collector import Collector
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.targets_run import Target

LOCK = "Lock main.priceCache.mu: "
NO_CLIENT = """\
[[rules]]
action = "drop"
source = "__meta_process_command"
regex = ".+ .+"
"""
"""The program's own load comes from a process with arguments."""


def _text(folder: Path, collector: str) -> str:
    """Settings with explanations, metrics of services, a ring and a Collector."""
    more = {"explain": "10s", "metrics_services": 3, "max_overhead": 1}
    text = settings(folder, table("otlp", collector), NO_CLIENT, **more)
    return text.replace("enabled = false", f"path = {json.dumps(str(folder / 'ring'))}")


@pytest.mark.full
def test_a_hot_lock_is_named_everywhere(tmp_path: Path) -> None:
    env = {"AGENT_TEST": str(tmp_path), "OTEL_SERVICE_NAME": "till"}
    with (
        Target.start(program("services/hotlock"), env=env) as shop,
        Collector(tmp_path) as collector,
        RunningAgent(tmp_path, _text(tmp_path, collector.url)) as agent,
    ):
        agent.await_said(f"till (pid {shop.pid}): {LOCK}")
        agent.wait_until(lambda: bool(agent.findings()), "no findings at the sink")
        till = {"namespace": "", "service": "till"}
        assert agent.metric("ebpfprof_agent_explanations_total") >= 1
        assert agent.metric("ebpfprof_service_finding", kind="hot_lock", **till) == 1
        # Another observation begins soon; this must not delay the end.
        assert agent.end() == 0
        assert not has_probes(shop.pid)
        (first, *_) = agent.findings()
        assert (first.service, first.pid) == ("till", shop.pid)
        (hot,) = (each for each in first.line["findings"] if each["kind"] == "hot_lock")
        assert hot["title"].startswith(LOCK)
        assert hot["level"] == "slow"
        assert hot["share"] > 0.3
        listed = verb("history", "--path", str(tmp_path / "ring"))
        assert f"till ({shop.pid}): {LOCK}" in listed.stdout
        (record, *_) = collector.logs(1)
        assert record["body"].startswith(LOCK)
        # It was recorded all the while.
        times = [window.times for window in agent.windows("till")]
        assert [begin for begin, _ in times[1:]] == [end for _, end in times[:-1]]
        assert times[-1][1] - times[0][0] > 10
