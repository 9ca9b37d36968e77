"""The order of findings, and which of them follow from others."""

from __future__ import annotations

import pytest

from ebpfprof.findings.finding import MORE_GOROUTINES, MOST_CPU_TIME, Finding, Level, Subject
from ebpfprof.findings.rules import ranked
from ebpfprof.findings.subjects import growing
from ebpfprof.profile.model import Frame
from tests.unit.findings.evidence import SEND, goroutine

PLACE = Frame("main.f", "/src/x.go", 1)


def finding(
    kind: str,
    level: Level = Level.SLOW,
    share: float | None = None,
    of_time: float | None = None,
    about: frozenset[Subject] = frozenset(),
) -> Finding:
    return Finding(kind=kind, level=level, title=kind, share=share, of_time=of_time, about=about)


def kinds(*findings: Finding) -> list[str]:
    return [one.kind for one in ranked(findings)]


def test_what_is_stuck_comes_first_then_the_largest_share() -> None:
    found = (
        finding("race_build", Level.NOTE),
        finding("memory_growth", Level.RISK, 0.9),
        finding("slow_peer", share=0.2),
        finding("starved_pool", share=0.5),
        finding("deadlock", Level.STUCK),
    )
    assert kinds(*found) == ["deadlock", "starved_pool", "slow_peer", "memory_growth", "race_build"]


def test_a_share_of_cpu_time_counts_as_the_time_that_it_takes() -> None:
    hot = finding("hot_function", share=0.96, of_time=0.25)
    assert kinds(hot, finding("neighbours", share=0.6)) == ["neighbours", "hot_function"]
    assert kinds(hot, finding("neighbours", share=0.2)) == ["hot_function", "neighbours"]


def test_what_follows_from_another_finding_is_left_out() -> None:
    lock, other = frozenset[Subject]({0x1000}), frozenset[Subject]({0x2000})
    deadlock = finding("deadlock", Level.STUCK, about=lock | {PLACE})
    assert kinds(finding("hot_lock", share=0.9, about=lock), deadlock) == ["deadlock"]
    assert kinds(finding("goroutine_leak", Level.RISK, about=frozenset({PLACE})), deadlock) == [
        "deadlock"
    ]
    assert kinds(finding("hot_lock", share=0.9, about=other), deadlock) == ["deadlock", "hot_lock"]
    assert kinds(finding("slow_peer", about=lock), deadlock) == ["deadlock", "slow_peer"]


def test_the_processors_belong_to_all_of_a_process() -> None:
    for cause in ("spinning", "neighbours"):
        assert kinds(finding("few_processors", share=0.9), finding(cause, share=0.2)) == [cause]


def test_memory_that_grows_in_other_functions_than_those_of_a_leak_is_another_fault() -> None:
    member = goroutine(1, "chan send", *SEND, "main.search:18")
    leak = finding("goroutine_leak", Level.RISK, about=growing([member]))
    by = [frozenset[Subject]({name}) for name in ("main.search", MORE_GOROUTINES, "main.remember")]
    found = [kinds(leak, finding("memory_growth", Level.RISK, about=about)) for about in by]
    assert found == [["goroutine_leak"]] * 2 + [["goroutine_leak", "memory_growth"]]


@pytest.mark.parametrize(
    ("about", "reported"),
    [
        (frozenset({MOST_CPU_TIME}), ["hot_function"]),
        (frozenset(), ["few_processors", "hot_function"]),
    ],
)
def test_processors_are_too_few_because_of_work_that_takes_most_of_their_time(
    about: frozenset[Subject], reported: list[str]
) -> None:
    waits = finding("few_processors", share=0.5, about=frozenset({MOST_CPU_TIME}))
    assert kinds(waits, finding("hot_function", share=0.7, of_time=0.3, about=about)) == reported
