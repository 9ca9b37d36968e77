"""The soak's verdict on growth: steady growth is a fault, a single step is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.soak import LEAST_CYCLES, MAX_GROWTH_KIB, WARM_UP, Held, Outcome

STEP_KIB = MAX_GROWTH_KIB + 1


def outcome(memory: Sequence[int]) -> Outcome:
    warming_up = [1 << 20] * WARM_UP
    held = [Held(kib, files=50, threads=8, objects=30) for kib in [*warming_up, *memory]]
    return Outcome(1.0, "", held)


@pytest.mark.parametrize("cycles", [3, 4, 5, 9, 240])
def test_steady_growth_of_memory_is_a_fault(cycles: int) -> None:
    grown = outcome([3 * STEP_KIB * cycle // (cycles // 3) // 3 for cycle in range(cycles)])
    assert [fault.split(" by ")[0] for fault in grown.faults()] == ["memory grew"]


@pytest.mark.parametrize("at", range(1, 12))
def test_a_single_step_of_memory_is_not_a_fault(at: int) -> None:
    assert outcome([0] * at + [10 * STEP_KIB] * (12 - at)).faults() == []


def test_the_shortest_run_can_show_growth() -> None:
    memory = [cycle * STEP_KIB for cycle in range(LEAST_CYCLES - WARM_UP)]
    assert outcome(memory).faults()
