"""The order of findings, and which of them follow from others."""

from __future__ import annotations

from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.rules import ranked


def finding(
    kind: str, level: Level = Level.SLOW, share: float | None = None, of_time: float | None = None
) -> Finding:
    return Finding(kind=kind, level=level, title=kind, share=share, of_time=of_time)


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
    hot_lock = finding("hot_lock", share=0.9)
    assert kinds(hot_lock, finding("deadlock", Level.STUCK)) == ["deadlock"]
    assert kinds(hot_lock, finding("slow_peer", share=0.1)) == ["hot_lock", "slow_peer"]
