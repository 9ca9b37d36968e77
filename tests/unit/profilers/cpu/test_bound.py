"""How many CPU samples the kernel takes."""

from __future__ import annotations

from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.cpu.bound import SampleBound

MS = 1_000_000


def test_the_cost_is_asked_for_only_when_the_target_has_used_enough() -> None:
    asked = []

    def spent(ns: float) -> Runs:
        asked.append(ns)
        return Runs(1, ns)

    bound = SampleBound(0.01)
    assert not bound.look(3, lambda: spent(0), 0)
    assert not bound.look(3, lambda: spent(1), 99 * MS)
    assert not bound.look(3, lambda: spent(2), None)
    assert asked == [0]
    assert bound.look(3, lambda: spent(10 * MS), 100 * MS)
    assert asked == [0, 10 * MS]
    assert bound.one_in(3) == 10
