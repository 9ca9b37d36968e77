"""A goroutine that never waits, in a loop that does no work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.findings import spinning
from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.model import Location, Sample
from tests.unit.findings.evidence import (
    HANDLER,
    LENGTH_NS,
    SELECT,
    burns,
    dump,
    evidence,
    goroutine,
    stack,
)

RUN = "main.(*reloader).run:23"
LOAD = "sync/atomic.(*Bool).Load"
SERVES = burns("main.handle:3", *HANDLER, cores=0.05)
RUNS = goroutine(9, "running")
WAITS = goroutine(9, "select", *SELECT, RUN)


def at_addresses(*addresses: int, cores: float, leaf: tuple[str, ...] = ()) -> list[Sample]:
    """The CPU time of one function, in equal parts at its instructions."""
    ns = round(cores * LENGTH_NS / len(addresses))
    frames = stack(*leaf, RUN)
    return [Sample((Location(at, None, frames),), (ns // 10_000_000, ns)) for at in addresses]


@pytest.mark.parametrize(
    "loop",
    [
        [burns(LOAD, RUN, cores=0.9)],
        at_addresses(*range(20), cores=0.9, leaf=(LOAD,)),
        at_addresses(1, 2, cores=0.9),  # for {}
        [burns("runtime.selectnbrecv", RUN, cores=0.6), burns(RUN, cores=0.3)],
    ],
)
def test_a_loop_that_asks_all_the_time_spins(loop: list[Sample]) -> None:
    (finding,) = spinning.find(evidence(cpu=[*loop, SERVES], dumps=[dump(RUNS)] * 20))
    assert finding.kind == "spinning"
    assert "main.(*reloader).run (reloader.go:23)" in finding.title
    assert finding.lines[0] == "Its goroutine never waited in 20 samples; it uses 90 % of a CPU."


def test_a_loop_that_yields_spins_with_the_time_of_the_scheduler() -> None:
    yields = burns("runtime.schedule", "runtime.gosched_m", "runtime.mcall", cores=0.7)
    own = burns(RUN, cores=0.1), burns("runtime.memmove", RUN, cores=0.1)
    seen = [dump(goroutine(9, "runnable", "runtime.Gosched", RUN)), *[dump(RUNS)] * 19]
    (finding,) = spinning.find(evidence(cpu=[yields, *own, SERVES], dumps=seen))
    assert finding.share == pytest.approx(0.9 / 0.95)
    assert not [*spinning.find(evidence(cpu=[*own, SERVES], dumps=[dump(RUNS)] * 20))]


def test_a_loop_that_computes_does_not_spin() -> None:
    computes = at_addresses(*range(20), cores=1.0)
    assert not [*spinning.find(evidence(cpu=computes, dumps=[dump(RUNS)] * 20))]


@pytest.mark.parametrize("seen", [[RUNS] * 15 + [WAITS] * 5, [RUNS] * 3])
def test_a_goroutine_that_waits_now_and_then_does_not_spin(seen: list[DumpedGoroutine]) -> None:
    found = evidence(cpu=[burns(LOAD, RUN, cores=0.9)], dumps=[dump(one) for one in seen])
    assert not [*spinning.find(found)]


@pytest.mark.parametrize(("samples", "is_sure"), [(20, False), (49, False), (50, True)])
def test_a_loop_that_few_samples_show_does_not_spin(samples: int, is_sure: bool) -> None:
    (loop,) = at_addresses(1, cores=0.9)
    few = replace(loop, values=(samples, loop.values[1]))
    assert bool([*spinning.find(evidence(cpu=[few], dumps=[dump(RUNS)] * 20))]) == is_sure


def test_a_loop_that_takes_little_of_a_cpu_does_not_spin() -> None:
    found = evidence(cpu=[burns(LOAD, RUN, cores=0.1)], dumps=[dump(RUNS)] * 20)
    assert not [*spinning.find(found)]
