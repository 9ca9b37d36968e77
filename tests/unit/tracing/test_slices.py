"""When slices of a trace end, and how long the pauses are."""

from __future__ import annotations

import pytest

from ebpfprof.tracing.slices import SHORTEST_NS, SliceBudget

SECOND = 1_000_000_000


class Costs:
    """A program that uses a processor, and loses a part of the time that it is traced."""

    def __init__(self, part: float) -> None:
        self.part, self.now_ns, self.traced_ns = part, 0, 0

    def budget(self, share: float, free_ns: float) -> SliceBudget:
        return SliceBudget(
            share, lambda: self.part * self.traced_ns, lambda: float(self.now_ns), free_ns
        )

    def record(self, share: float, length_ns: int, free_ns: float = 0.0) -> tuple[int, int]:
        """How long slices were in all, and how many there were."""
        budget, slices, paused_ns = self.budget(share, free_ns), 0, 0
        self.of = budget
        begins = True
        while self.now_ns < length_ns:
            if begins:
                budget.begin(self.now_ns)
                slices, begins = slices + 1, False
            self.now_ns += 1_000_000
            self.traced_ns += 1_000_000
            if budget.is_over(self.now_ns):
                paused_ns = budget.end(self.now_ns)
                self.now_ns += paused_ns
                begins = True
        return self.traced_ns, slices


def test_without_a_bound_all_is_one_slice() -> None:
    assert Costs(0.9).record(0, 10 * SECOND) == (10 * SECOND, 1)


def test_what_is_within_the_bound_is_one_slice() -> None:
    assert Costs(0.005).record(0.01, 10 * SECOND) == (10 * SECOND, 1)


def test_what_costs_more_is_recorded_in_slices_within_the_bound() -> None:
    costs = Costs(0.4)
    traced_ns, slices = costs.record(0.01, 60 * SECOND)
    assert slices >= 5
    assert traced_ns >= slices * SHORTEST_NS
    assert 0.005 < costs.part * traced_ns / costs.now_ns < 0.013


def test_a_short_recording_is_whole_if_all_of_it_costs_no_more_than_what_is_free() -> None:
    costs = Costs(0.1)
    assert costs.record(0.05, 2 * SECOND, free_ns=0.1 * SECOND) == (2 * SECOND, 1)
    assert costs.of.share_of_slices is None


def test_what_is_free_is_so_once() -> None:
    """Of 60 s at 5 % of a processor, 3 s of cost; what is free comes on top."""
    bounded, free = Costs(0.4), Costs(0.4)
    bounded.record(0.05, 60 * SECOND)
    free.record(0.05, 60 * SECOND, free_ns=2 * SECOND)
    more_ns = 0.4 * (free.traced_ns - bounded.traced_ns)
    assert 1.8 * SECOND < more_ns < 2.2 * SECOND


def test_the_slices_show_what_all_costs() -> None:
    costs = Costs(0.4)
    costs.record(0.01, 60 * SECOND)
    assert costs.of.share_of_slices == pytest.approx(0.4)
