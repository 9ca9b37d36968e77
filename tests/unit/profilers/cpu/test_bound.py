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

    bound = SampleBound()
    assert not bound.look(lambda: spent(0), 0, 0.01)
    assert not bound.look(lambda: spent(1), 99 * MS, 0.01)
    assert not bound.look(lambda: spent(2), None, 0.01)
    assert asked == [0]
    assert bound.look(lambda: spent(10 * MS), 100 * MS, 0.01)
    assert asked == [0, 10 * MS]
    assert bound.one_in == 10
