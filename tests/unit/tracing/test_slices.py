"""When slices of a trace end, and how long the pauses are."""

from __future__ import annotations

from ebpfprof.tracing.slices import SHORTEST_NS, SliceBudget

SECOND = 1_000_000_000


class Costs:
    """A program that uses a processor, and loses a part of the time that it is traced."""

    def __init__(self, part: float) -> None:
        self.part, self.now_ns, self.traced_ns = part, 0, 0

    def budget(self, share: float) -> SliceBudget:
        return SliceBudget(share, lambda: self.part * self.traced_ns, lambda: float(self.now_ns))

    def record(self, share: float, length_ns: int) -> tuple[int, int]:
        """How long slices were in all, and how many there were."""
        budget, slices, paused_ns = self.budget(share), 0, 0
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
