"""Very many timers that take CPU time."""

from __future__ import annotations

import pytest

from ebpfprof.findings import timers
from ebpfprof.findings.evidence import Evidence
from ebpfprof.profile.model import Sample
from tests.unit.findings.evidence import burns, evidence
from tests.unit.findings.runtime_evidence import counted

WATCH = "main.(*chat).watch:37"
SETS = burns("runtime.(*timer).maybeAdd", "time.NewTimer", "time.After", WATCH, cores=0.2)
FIRES = burns("runtime.(*timers).siftDown", "runtime.(*timers).check", cores=0.2)
OLD = burns("runtime.siftdownTimer", "runtime.runtimer", "runtime.checkTimers", cores=0.4)
WORKS = burns("main.(*chat).send:12", cores=0.4)


def with_timers(number: int | None, *cpu: Sample) -> Evidence:
    return evidence(cpu=cpu, runtime=counted(timers=number))


def test_many_timers_that_take_cpu_time_are_reported_with_who_sets_them() -> None:
    (finding,) = timers.find(with_timers(100_000, SETS, FIRES, WORKS))
    assert finding.title == "Timers: 100000 timers take 50 % of the CPU time."
    assert finding.lines[0] == "Most are set in main.(*chat).watch (chat.go:37)."
    assert "time.After" in finding.lines[1]


def test_timers_of_go_1_22_and_older_count() -> None:
    (finding,) = timers.find(with_timers(100_000, OLD, WORKS))
    assert finding.share == pytest.approx(0.5)


def test_timers_that_cost_nothing_are_fine_however_many() -> None:
    cheap = burns("runtime.(*timers).check", cores=0.02)
    assert not [*timers.find(with_timers(1_000_000, cheap, WORKS))]


def test_timers_of_a_program_that_hardly_uses_the_cpu_are_fine() -> None:
    assert not [*timers.find(with_timers(100_000, burns("runtime.(*timers).check", cores=0.05)))]


def test_a_share_that_few_timers_take_is_that_of_an_idle_program() -> None:
    assert not [*timers.find(with_timers(100, SETS, FIRES, WORKS))]
    assert not [*timers.find(with_timers(None, SETS, FIRES, WORKS))]
