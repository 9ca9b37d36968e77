"""The memory statistics in /metrics, under the names of Go's own collector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.differential.test_memory import gos, running
from tests.kernel.kernel_state import has_probes
from tests.server.serving import Server, ask
from tests.targets_run import Target

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
# The name of client_golang, and that of the same in the target's answer.
NAMES = {
    "go_memstats_alloc_bytes": "allocated",
    "go_memstats_alloc_bytes_total": "total_allocated",
    "go_memstats_mallocs_total": "mallocs",
    "go_memstats_frees_total": "frees",
    "go_memstats_sys_bytes": "mapped",
    "go_memstats_heap_inuse_bytes": "heap_in_use",
    "go_memstats_heap_objects": "objects",
    "go_memstats_mspan_inuse_bytes": "spans_in_use",
    "go_gc_duration_seconds_count": "cycles",
}


def values(families: Iterable[Metric], pid: int) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("pid") == str(pid)
    }


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Target, Server]]:
    with (
        running(GOGC="off") as target,
        Server("--pid", str(target.pid), "--profile", "block") as server,
    ):
        assert server.ready
        yield target, server


@pytest.mark.parametrize(
    ("accept", "parse"),
    [("text/plain", text_string_to_metric_families), (OPEN_METRICS, open_metrics)],
)
def test_they_are_those_of_the_process(
    served: tuple[Target, Server], accept: str, parse: Callable[[str], Any]
) -> None:
    target, server = served
    target.ask("keep 500", "done")
    target.ask("gc", "done")
    before = gos(target)
    answer = ask(server.address, "/metrics", headers={"Accept": accept})
    after = gos(target)
    assert not has_probes(target.pid)
    found = values(parse(answer.body.decode()), target.pid)
    for name, field in NAMES.items():
        low, high = sorted((before[field], after[field]))
        assert low <= found[name] <= high, name
    assert found["go_memstats_heap_alloc_bytes"] == found["go_memstats_alloc_bytes"]
    assert found["go_gc_gogc_percent"] == -1
    assert "go_memstats_next_gc_bytes" not in found  # none is due
    assert "go_gc_gomemlimit_bytes" not in found


@pytest.mark.full
def test_a_process_that_ended_has_none(target_and_other: tuple[Target, Target]) -> None:
    ends, stays = target_and_other
    with Server("--pid", str(ends.pid), "--pid", str(stays.pid), "--profile", "block") as server:
        assert server.ready
        first = server.get("/metrics").body.decode()
        ends.kill()
        second = server.get("/metrics").body.decode()
    for text, expected in ((first, {ends.pid, stays.pid}), (second, {stays.pid})):
        families = list(text_string_to_metric_families(text))
        shown = {
            pid for pid in (ends.pid, stays.pid) if "go_memstats_sys_bytes" in values(families, pid)
        }
        assert shown == expected


@pytest.fixture
def target_and_other() -> Any:  # noqa: ANN401 - a generator
    with running() as one, running() as other:
        yield one, other
