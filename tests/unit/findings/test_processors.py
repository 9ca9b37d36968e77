"""Too few processors: goroutines wait for one while all are busy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.findings import processors
from ebpfprof.findings.evidence import Evidence
from ebpfprof.findings.runtime import RuntimeMoment
from ebpfprof.profile.model import Sample
from tests.unit.findings.evidence import HANDLER, burns, evidence, waits
from tests.unit.findings.runtime_evidence import counted, histogram, moments, used

SEARCH = "main.(*index).search:40"
ACCEPT = ("runtime.gopark", "internal/poll.runtime_pollWait", "net/http.(*conn).serve")
MS = 1_000_000


def server(waiting: float, *, error: float = 0.0) -> tuple[Sample, ...]:
    """A server of which one request runs, and others wait for a processor."""
    return (
        waits("running", SEARCH, *HANDLER, mean=1),
        waits("runnable", *ACCEPT, mean=waiting, error=error),
    )


def waiting_for_one(**counters: object) -> Evidence:
    runtime = counted(waits={18 * MS: 100}, **({"busy": 0.99} | counters))  # type: ignore[arg-type]  # mypy can't know the fields
    return evidence(*server(3), cpu=[burns(SEARCH, *HANDLER, cores=1)], runtime=runtime)


def test_requests_that_wait_for_a_processor_are_reported_with_how_long_and_the_cause() -> None:
    (finding,) = processors.find(waiting_for_one())
    assert (finding.kind, finding.share) == ("few_processors", 0.75)
    assert "75 %" in finding.title
    assert finding.lines == (
        "3.0 goroutines wait for 19 ms (p99). GOMAXPROCS=4: 99 % busy.",
        "Most CPU time: main.(*index).search (index.go:40), 100 %.",
    )


def test_idle_processors_are_not_too_few() -> None:
    assert not [*processors.find(waiting_for_one(busy=0.7))]


def test_a_batch_program_may_use_all_processors() -> None:
    batch = (
        waits("running", "main.pack", mean=4),
        waits("runnable", "main.pack", mean=30),
    )
    runtime = counted(waits={18 * MS: 100}, busy=1.0)  # mypy can't know the fields
    assert not [*processors.find(evidence(*batch, runtime=runtime))]


@pytest.mark.parametrize(
    ("samples", "waited_ns"),
    [
        (server(0.4), 18 * MS),  # a third of the time at most, but only now and then
        (server(1, error=0.9), 18 * MS),  # by a few samples
        (server(3), 100_000),  # for a tenth of a millisecond
    ],
)
def test_short_or_uncertain_waits_are_not_reported(
    samples: tuple[Sample, ...], waited_ns: int
) -> None:
    runtime = counted(waits={waited_ns: 100}, busy=0.99)  # mypy can't know the fields
    assert not [*processors.find(evidence(*samples, runtime=runtime))]


def test_yields_to_nobody_do_not_hide_waits() -> None:
    """The collector's sweeper yields millions of times for 100 ns."""
    runtime = counted(
        waits={100: 1_000_000, 20_000: 500, 18 * MS: 100, 900 * MS: 2}, busy=0.99
    )  # mypy can't know the fields
    (finding,) = processors.find(evidence(*server(3), runtime=runtime))
    assert "19 ms (p99)" in finding.lines[0]


def test_without_collections_the_cpu_time_says_how_busy_processors_are() -> None:
    none = RuntimeMoment(waits_to_run=histogram({}), processors=4)
    runtime = moments(none, replace(none, waits_to_run=histogram({18 * MS: 100})))
    busy = evidence(*server(3), runtime=runtime, host=used(3.9))
    idle = evidence(*server(3), runtime=runtime, host=used(1.0))
    assert [finding.kind for finding in processors.find(busy)] == ["few_processors"]
    assert not [*processors.find(idle)]


def test_threads_that_others_keep_from_cpus_are_no_matter_of_gomaxprocs() -> None:
    runtime = counted(waits={18 * MS: 100}, busy=1.0)  # mypy can't know the fields
    assert not [*processors.find(evidence(*server(3), runtime=runtime, host=used(1.0)))]
    (finding,) = processors.find(evidence(*server(3), runtime=runtime, host=used(3.0)))
    assert finding.kind == "few_processors"


def test_what_is_not_known_is_not_reported() -> None:
    nothing = evidence(*server(3))
    assert not [*processors.find(nothing)]
    assert processors.fine(nothing) == ""
    assert processors.fine(waiting_for_one()) == "run queue 19 ms (p99)"
