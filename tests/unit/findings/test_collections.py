"""Garbage collections that take much CPU time, with the reason, and stops of all goroutines."""

from __future__ import annotations

import pytest

from ebpfprof.findings import collections
from ebpfprof.findings.evidence import BeforeAndAfter, Evidence
from ebpfprof.findings.runtime import RuntimeMoment
from tests.unit.findings.evidence import HANDLER, burns, evidence
from tests.unit.findings.runtime_evidence import MIB, counted
from tests.unit.findings.runtime_evidence import collections as passed

PARSE = "main.(*engine).parse:33"
ALLOCATES = burns("runtime.mallocgc", "runtime.newobject", PARSE, *HANDLER, cores=0.6)
WORKS = burns("runtime.memmove", "main.(*engine).copy:50", *HANDLER, cores=0.4)
MARKS = burns("runtime.gcDrain", "runtime.gcBgMarkWorker", cores=0.5)


def collecting(share: float, runtime: BeforeAndAfter[RuntimeMoment] | None = None) -> Evidence:
    return evidence(cpu=[ALLOCATES, WORKS], runtime=counted(runtime, collecting=share))


@pytest.mark.parametrize(
    ("runtime", "kind", "reason"),
    [
        (passed(400, percent=10), "collections", "GOGC=10 is low."),
        (
            passed(400, percent=0, limit=8000 * MIB, goal=50 * MIB, marked=48 * MIB),
            *("collections", "GOGC=0 is low."),
        ),
        (passed(400, forced=390), "forced_collections", "the program calls runtime.GC"),
        (
            passed(400, limit=64 * MIB, goal=45 * MIB, marked=44 * MIB),
            *("heap_limit", "GOMEMLIMIT (64.0 MiB) is too low."),
        ),
        (
            passed(400, limit=64 * MIB, goal=50 * MIB, marked=48 * MIB, percent=-1),
            *("heap_limit", "GOMEMLIMIT (64.0 MiB) is too low."),
        ),
        (passed(400, allocated=8000 * MIB), "collections", "it allocates 800 MiB a second."),
        (
            passed(400, allocated=8000 * MIB, forced=20),
            "collections",
            "it allocates 800 MiB a second.",
        ),
        # A limit that is far away is not the reason.
        (passed(400, allocated=8000 * MIB, limit=8000 * MIB), "collections", "it allocates"),
    ],
)
def test_the_reason_for_many_collections_is_named(
    runtime: BeforeAndAfter[RuntimeMoment], kind: str, reason: str
) -> None:
    (finding,) = collections.find(collecting(0.6, runtime))
    assert finding.kind == kind
    assert finding.share == pytest.approx(0.6)
    assert "60 %" in finding.title
    assert reason in finding.title


def test_allocations_are_counted_with_the_function_that_makes_most() -> None:
    runtime = passed(400, allocated=600 * MIB, objects=18_000_000)
    (finding,) = collections.find(collecting(0.3, runtime))
    assert finding.lines[0].startswith("400 collections, one every 25 ms; 40.0 MiB of 80.0 MiB")
    assert "1,800,000 objects a second of 35 B on average" in finding.lines[1]
    assert "main.(*engine).parse (engine.go:33)" in finding.lines[1]
    assert finding.place is not None


def test_usual_collections_are_fine() -> None:
    usual = collecting(0.12, passed(400, percent=10))
    assert not [*collections.find(usual)]
    assert collections.fine(usual) == "garbage collection 12 %"


def test_a_few_collections_of_an_idle_program_are_fine() -> None:
    assert not [*collections.find(collecting(0.6, passed(2)))]
    idle = evidence(cpu=[burns(PARSE, cores=0.02)], runtime=counted(passed(50), collecting=0.6))
    assert not [*collections.find(idle)]


def test_without_the_runtime_s_own_account_the_cpu_profile_says_what_collections_took() -> None:
    """Go 1.19 has no such account."""
    found = evidence(cpu=[ALLOCATES, WORKS, MARKS], runtime=passed(400))
    (finding,) = collections.find(found)
    assert finding.share == pytest.approx(1 / 3)
    assert finding.error > 0
    idle = burns("runtime.gcDrainMarkWorkerIdle", "runtime.gcBgMarkWorker", cores=5)
    assert not [*collections.find(evidence(cpu=[ALLOCATES, WORKS, idle], runtime=passed(400)))]


def test_long_stops_are_reported_with_what_they_are_for() -> None:
    ms = 1_000_000
    stopped = evidence(runtime=counted(other_stops={10 * ms: 200}))
    (finding,) = collections.find(stopped)
    assert finding.kind == "stops"
    assert "runtime.ReadMemStats" in finding.title
    assert finding.lines == ("200 stops, half of them for 9.4 ms or more, 9.4 ms at most.",)
    assert not [*collections.find(evidence(runtime=counted(stops={10 * ms: 50})))]


def test_a_few_stops_that_were_long_because_cpus_were_busy_are_fine() -> None:
    stops = {50_000: 1000, 60_000_000: 30}
    assert not [*collections.find(evidence(runtime=counted(stops=stops)))]


def test_what_is_not_known_is_not_reported() -> None:
    assert not [*collections.find(evidence())]
    assert collections.fine(evidence()) == ""
