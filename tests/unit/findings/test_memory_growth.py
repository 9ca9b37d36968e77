"""A heap that grows from collection to collection."""

from __future__ import annotations

import random

import pytest

from ebpfprof.findings import memory_growth
from ebpfprof.findings.evidence import BeforeAndAfter, Evidence
from ebpfprof.findings.host import HostMoment
from ebpfprof.findings.runtime import GrowingStack, HeapMoment
from ebpfprof.profile.memory import TypeBytes
from tests.unit.findings.evidence import evidence, stack
from tests.unit.findings.runtime_evidence import MIB, collections, heap

GROWS = heap(100, 112, 125, 137, 150)
KEEP = stack("main.(*sessions).keep:12", "main.handle:30")


def test_growth_over_collections_is_reported_with_the_stacks_that_allocated_it() -> None:
    growing = (GrowingStack(KEEP, 45 * MIB),)
    (finding,) = memory_growth.find(evidence(heap=GROWS, growing=growing))
    assert finding.kind == "memory_growth"
    assert finding.title == "Memory: the heap grows by 300 MiB a minute, to 150 MiB now."
    assert finding.lines == (
        "In use after 5 collections: 100 MiB, then 150 MiB.",
        "Allocated by main.(*sessions).keep (sessions.go:12): 45 MiB more.",
    )
    assert finding.place == KEEP[0]
    assert "leak" not in finding.title.lower()


def test_without_a_memory_profile_the_largest_types_are_named() -> None:
    types = (TypeBytes("main.session", 1000, 90 * MIB), TypeBytes("main.user", 10, 9 * MIB))
    (finding,) = memory_growth.find(evidence(heap=GROWS, largest_types=types))
    assert finding.lines[1] == "Most of the heap: main.session (90 MiB)."
    assert finding.place is None
    (finding,) = memory_growth.find(evidence(heap=GROWS, largest_types=types[1:]))
    assert finding.lines[1] == "Most of the heap: data without pointers, such as []byte and string."


@pytest.mark.parametrize(
    "steady",
    [
        heap(100, 112, 125, 110, 101),  # it came back
        heap(3, 3.5, 4, 4.5, 5),  # 2 MiB
        heap(1000, 1004, 1008, 1012, 1016),  # 16 MiB are little of it
        heap(100, 150),  # a single rise
        heap(100, 100, 100, 100, 150),  # a single rise at the end
        (),
    ],
)
def test_a_heap_that_is_steady_or_little_known_is_not_reported(
    steady: tuple[HeapMoment, ...],
) -> None:
    assert not [*memory_growth.find(evidence(heap=steady))]


def test_chance_is_not_growth() -> None:
    """What requests in progress hold differs from collection to collection."""
    draws = random.Random(45)
    for _ in range(200):
        noise = heap(*(draws.uniform(50, 150) for _ in range(15)))
        assert not [*memory_growth.find(evidence(heap=noise))]


def test_two_rises_are_enough_if_most_of_what_was_allocated_stays() -> None:
    rises = heap(25, 48, 92)
    for marked in (rises, heap(25, 30, 92)):
        kept = evidence(heap=marked, runtime=collections(2, allocated=75 * MIB))
        assert [finding.kind for finding in memory_growth.find(kept)] == ["memory_growth"]
    freed = evidence(heap=rises, runtime=collections(2, allocated=7500 * MIB))
    assert not [*memory_growth.find(freed)]


def test_a_heap_that_is_never_collected_is_reported() -> None:
    live = tuple(HeapMoment(s * 10**9, 0, 0, (20 + 10 * s) * MIB) for s in range(11))
    off = evidence(heap=live, runtime=collections(0, percent=-1))
    (finding,) = memory_growth.find(off)
    assert finding.kind == "never_collected"
    assert finding.title == "Memory: the heap grows by 600 MiB a minute, to 120 MiB now."
    limited = collections(0, percent=-1, limit=500 * MIB)
    assert not [*memory_growth.find(evidence(heap=live, runtime=limited))]
    assert not [*memory_growth.find(evidence(heap=live, runtime=collections(0)))]


def test_memory_is_steady_only_if_collections_show_it() -> None:
    assert memory_growth.fine(evidence(heap=heap(100, 100))) == "memory steady"
    assert memory_growth.fine(evidence(heap=heap(100))) == ""


def test_a_collection_of_which_the_result_is_not_known_is_no_growth() -> None:
    kept = collections(2, allocated=100 * MIB)
    assert not [*memory_growth.find(evidence(heap=heap(0, 200, 205), runtime=kept))]
    assert [*memory_growth.find(evidence(heap=heap(0, 150, 200, 250), runtime=kept))]


def _of_age(seconds: float, *marked_mib: float) -> Evidence:
    host = BeforeAndAfter(HostMoment(cpu_ns=0), HostMoment(cpu_ns=0, age_ns=round(seconds * 1e9)))
    return evidence(heap=heap(*marked_mib), host=host)


def test_after_its_start_a_heap_must_double() -> None:
    """As that of Prometheus, which grew by 5 MiB in the first seconds."""
    warms_up = (20, 22, 24, 26, 28)
    assert not [*memory_growth.find(_of_age(25, *warms_up))]
    assert memory_growth.fine(_of_age(25, *warms_up)) == "heap 8.0 MiB larger, 25 s after the start"
    assert [*memory_growth.find(_of_age(61, *warms_up))]
    assert [*memory_growth.find(_of_age(25, 20, 25, 30, 35, 40))]


def test_growth_that_is_no_finding_is_not_called_steady() -> None:
    slow = evidence(heap=heap(50, 51, 52, 53, 54))
    assert not [*memory_growth.find(slow)]
    assert memory_growth.fine(slow) == "heap 4.0 MiB larger"
    assert memory_growth.fine(evidence(heap=heap(50, 50.1, 50.2, 50.3, 50.4))) == "memory steady"
