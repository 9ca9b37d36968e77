"""Findings at OTLP receivers: a log record each, beside the profiles of the same sink."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.agent.sinks.backends import remote_delivery
from ebpfprof.agent.sinks.folder import INDEX, FolderDelivery
from ebpfprof.agent.sinks.otlp import log_request
from ebpfprof.agent.sinks.queued import QueuedSink
from ebpfprof.export.otlp.schema import message_class
from ebpfprof.profile.service import ServiceFinding, ServiceFindings, ServiceWindow
from tests.agent.waiting import wait_until
from tests.backends.collector import Collector
from tests.backends.scripted_server import ScriptedServer, answer
from tests.backends.windows import IDENTITY, sink, window_of
from tests.targets_run import DEADLINE_S

pytestmark = pytest.mark.usefixtures("retries_soon")
START_S = 1_790_000_000.0
HOT = ServiceFinding(
    kind="hot_lock",
    level="slow",
    title="Lock main.mu: 54 % of the time of requests.",
    subject="Lock main.mu",
    since_s=START_S - 600,
    lines=("27 goroutines wait on average.", "Its holder: waits for 10.0.0.7:5432."),
    share=0.54,
    place="main.get (main.go:7)",
)
DEADLOCK = ServiceFinding("deadlock", "stuck", "Deadlock: \udcff.", "x", START_S)
PARTIAL = message_class("ExportLogsServiceResponse")()
PARTIAL.partial_success.rejected_log_records = 1


def findings(*found: ServiceFinding, time_s: float = START_S) -> ServiceFindings:
    return ServiceFindings(IDENTITY, 4711, 9, "shop", time_s, found)


def opened(url: str, said: list[str], kind: str = "otlp") -> QueuedSink:
    """A sink as the agent opens it."""
    takes = (ServiceWindow, ServiceFindings)
    return QueuedSink(kind, remote_delivery(sink(kind, url)), notify=said.append, takes=takes)


def delivered(url: str, *items: ServiceFindings | ServiceWindow, kind: str = "otlp") -> list[str]:
    """What is said while these items are delivered."""
    said: list[str] = []
    ours = opened(url, said, kind)
    for item in items:
        ours.take(item)
    wait_until(lambda: ours.counters().waiting == 0)
    ours.close(DEADLINE_S)
    return said


def test_a_collector_has_each_finding_with_its_evidence(tmp_path: Path) -> None:
    with Collector(tmp_path) as collector:
        said = delivered(collector.url, window_of(START_S), findings(HOT, DEADLOCK))
        assert said == []
        collector.profiles(1)
        hot, deadlock = collector.logs(2)
    assert hot["resource"]["service.name"] == "shop"
    assert hot["resource"]["k8s.pod.name"] == "shop-5d8f"
    assert (hot["scope"], hot["body"]) == ("ebpfprof", HOT.title)
    assert (hot["severity"], hot["severity_text"], hot["event"]) == (13, "WARN", "ebpfprof.finding")
    assert hot["time_ns"] == round(START_S * 1e9)
    assert hot["attributes"] == {
        "ebpfprof.finding.kind": "hot_lock",
        "ebpfprof.finding.level": "slow",
        "ebpfprof.finding.evidence": "\n".join(HOT.lines),
        "ebpfprof.finding.place": "main.get (main.go:7)",
        "ebpfprof.finding.since": "2026-09-21T14:03:20+00:00",
        "ebpfprof.finding.share": 0.54,
        "process.pid": 4711,
    }
    assert (deadlock["severity"], deadlock["body"]) == (17, "Deadlock: \\udcff.")
    assert "ebpfprof.finding.share" not in deadlock["attributes"]


def test_the_path_follows_from_the_address_of_profiles() -> None:
    with ScriptedServer() as server:
        url = f"{server.url}/otlp/v1development/profiles"
        assert delivered(url, findings(HOT)) == []
        assert delivered(f"{server.url}/", findings(HOT)) == []
        assert [each.path for each in server.received] == ["/otlp/v1/logs", "/v1/logs"]
        message: Any = message_class("ExportLogsServiceRequest").FromString(
            gzip.decompress(server.received[0].body)
        )
        assert message == message_class("ExportLogsServiceRequest").FromString(
            log_request(findings(HOT))
        )


def test_a_receiver_without_logs_is_reported_once_and_gets_its_profiles() -> None:
    with ScriptedServer(answer(404, b"no logs here")) as server:
        said = delivered(
            server.url, findings(HOT), window_of(START_S), findings(HOT, time_s=START_S + 600)
        )
        paths = [each.path for each in server.received]
    assert paths == ["/v1/logs", *["/v1development/profiles"] * 2]
    problem = "The sink otlp could not deliver: findings: the status is 404: no logs here"
    assert said == [problem, "The sink otlp delivers again."]


def test_a_busy_receiver_gets_findings_later_and_a_partial_success_is_final() -> None:
    steps = answer(503), answer(200, PARTIAL.SerializeToString())
    with ScriptedServer(*steps) as server:
        said = delivered(server.url, findings(HOT), findings(HOT, time_s=START_S + 600))
        assert len(server.received) == 3
    assert any("503" in line for line in said)
    assert any("findings: it rejected some" in line for line in said)


def test_nothing_is_sent_without_findings_or_to_backends_without_logs() -> None:
    with ScriptedServer(then=answer(200, b"{}")) as server:
        delivered(server.url, findings())
        for kind in ("parca", "pyroscope"):
            assert delivered(server.url, findings(HOT), kind=kind) == []
        assert server.received == []


def test_a_folder_has_a_line_of_its_index_for_each_explanation(tmp_path: Path) -> None:
    delivery = FolderDelivery(str(tmp_path))
    delivery.deliver(findings(replace(DEADLOCK, title="Deadlock.")))
    delivery.deliver(findings())
    found, none = map(json.loads, (tmp_path / INDEX).read_text().splitlines())
    assert found["identity"]["service"] == "shop"
    assert [each["title"] for each in found["findings"]] == ["Deadlock."]
    assert none["findings"] == []
