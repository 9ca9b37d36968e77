"""Windows of allocations: what each stands for, with a program and a process that are made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.overhead.cost import Cost, Runs
from ebpfprof.overhead.process_budget import ProcessBudget
from ebpfprof.profilers.heap.gate_program import GateProgram
from ebpfprof.profilers.heap.gate_tables import AllocatingStack
from ebpfprof.profilers.heap.gate_windows import ClassBytes, GateWindows
from ebpfprof.profilers.spending import Spending

A = AllocatingStack((1,), 64)
SECOND = 10**9


def as_it_is(stack: AllocatingStack) -> AllocatingStack:
    return stack


class Made:
    """A recording whose clock, counts and counters the test sets."""

    def __init__(self) -> None:
        self.now_ns, self.objects, self.allocated = SECOND, 0, 0
        self.while_detaching: Callable[[], None] = lambda: None
        program = SimpleNamespace(
            tables=SimpleNamespace(counts=lambda _index: Counter({A: self.objects})),
            runs=lambda _index: Runs(),
            attach=lambda _index: None,
            record=lambda _index, **_: None,
            detach_target=lambda _index, **_: self.while_detaching(),
            hit_ns=None,
            alarms=None,
        )
        process = SimpleNamespace(cpu_ns=lambda: self.now_ns, pid=1)
        go = cast("GoTarget", SimpleNamespace(target=process))
        self.probes = cast("GateProgram", program)
        self.weights: list[float] = []
        self.windows = GateWindows(
            *(self.probes, 0, go),
            rate_bytes=1,
            lease=ProcessBudget(0.0).lease(Cost),  # without a thread: the test takes its place
            allocated=lambda: ClassBytes({64: 64.0 * self.allocated}),
            note_window=self.weights.append,
            clock_ns=lambda: self.now_ns,
        )
        self.spending = Spending(self.probes, 0, go, ProcessBudget(1.0).lease(Cost))

    def passes(self, seconds: float, objects: int, *, counted: bool = True) -> None:
        """So much time, in which the program allocates that many objects."""
        self.now_ns += round(seconds * SECOND)
        self.allocated += objects
        self.objects += objects if counted else 0

    def starts(self) -> None:
        """A recording; after a second, with a hundred objects, its probes are detached."""
        self.windows.start()
        self.passes(1, 100)
        self.close()

    def close(self) -> None:
        self.windows._close(self.spending)

    def reopen(self) -> None:
        self.windows._begin(self.windows._closed_ns, self.spending)

    def estimate(self) -> float:
        sums, missed = self.windows.found(as_it_is)
        return sums.estimates(missed)[A].objects


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made()


def test_what_is_allocated_while_probes_are_being_detached_counts(made: Made) -> None:
    made.while_detaching = lambda: made.passes(0.1, 10, counted=False)
    made.starts()
    made.passes(0.9, 90, counted=False)
    made.reopen()
    made.passes(1, 100)
    assert made.estimate() == pytest.approx(300)


def test_an_open_window_counts_by_its_own_length(made: Made) -> None:
    made.starts()
    made.passes(9, 900, counted=False)
    made.reopen()
    made.passes(1, 100)
    sums, _ = made.windows.found(as_it_is)
    assert sums.weights == pytest.approx(10)
    assert (sums.recorded_ns, sums.stood_for_ns) == (2 * SECOND, 11 * SECOND)
    assert made.estimate() == pytest.approx(1100)


def test_the_pause_before_the_end_counts_too(made: Made) -> None:
    made.starts()
    made.passes(4, 400, counted=False)
    made.reopen()
    made.passes(1, 100)
    made.close()
    made.passes(5, 500, counted=False)
    made.windows.stop()
    made.passes(50, 7, counted=False)  # no more of the recording
    assert made.estimate() == pytest.approx(1100)
    sums, _ = made.windows.found(as_it_is)
    assert (sums.recorded_ns, sums.stood_for_ns) == (2 * SECOND, 11 * SECOND)
    assert made.weights == [1.0, 5.0]


def test_nothing_stands_for_the_time_between_two_recordings(made: Made) -> None:
    made.starts()
    made.passes(4, 400, counted=False)
    made.windows.stop()
    made.passes(1000, 100_000, counted=False)
    made.windows.start()
    made.passes(1, 100)
    made.close()
    assert made.estimate() == pytest.approx(600)
    sums, _ = made.windows.found(as_it_is)
    assert sums.stood_for_ns == 6 * SECOND
    assert made.weights == [1.0, 1.0]


def test_without_a_pause_all_is_counted(made: Made) -> None:
    made.windows.start()
    made.passes(1, 100)
    made.windows.stop()
    made.passes(10, 5, counted=False)
    made.windows.start()
    made.passes(1, 50)
    assert made.estimate() == 150
    sums, missed = made.windows.found(as_it_is)
    assert sums.share == 1
    assert not sums.windows
    assert missed == {}


def test_a_window_that_the_end_cuts_short_counts_once(made: Made) -> None:
    made.starts()
    made.passes(4, 400, counted=False)
    made.reopen()
    made.passes(1, 100)
    made.windows.stop()
    sums, _ = made.windows.found(as_it_is)
    assert (sums.recorded_ns, sums.stood_for_ns) == (2 * SECOND, 6 * SECOND)
    assert made.estimate() == pytest.approx(600)
