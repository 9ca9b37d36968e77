"""The size of the heap at which the next garbage collection is to end (runtime/mgcpacer.go)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from symbolizer.go.runtime_layout import RuntimeLayout

_LEAST_HEADROOM: Final = 1 << 20  # memoryLimitMinHeapGoalHeadroom
_RUNWAY: Final = 64 << 10  # minRunway
_NEVER: Final = (1 << 64) - 1
BEYOND_MEMORY: Final = 1 << 56
"""More bytes than any memory has."""


def heap_goal(word: Callable[[str], int], layout: RuntimeLayout) -> int | None:
    """The goal in bytes, of words of runtime.gcController by their names.

    As heapGoalInternal and memoryLimitHeapGoal, Go 1.19 to 1.27; Go 1.17 and 1.18 store it. None
    with GOGC=off and no memory limit: then it is beyond any memory.
    """
    is_stored = layout.has("gcControllerState", "heapGoal")
    goal = word("heapGoal") if is_stored else _goal(word, layout.memory_limit_headroom_percent)
    return goal if goal < BEYOND_MEMORY else None


def _goal(word: Callable[[str], int], headroom_percent: int) -> int:
    goal = word("gcPercentHeapGoal")
    limited = _below_limit(word, headroom_percent)
    if limited < goal:
        return limited
    goal = max(goal, word("sweepDistMinTrigger"))
    triggered = word("triggered")
    return max(goal, triggered + _RUNWAY) if triggered != _NEVER else goal


def _below_limit(word: Callable[[str], int], headroom_percent: int) -> int:
    limit, mapped, marked = (word(n) for n in ("memoryLimit", "mappedReady", "heapMarked"))
    objects = word("totalAlloc") - word("totalFree")
    besides = max(0, mapped - word("heapFree") - objects)
    over = max(0, mapped - limit)
    if besides + over >= limit:
        return marked
    goal = limit - (besides + over)
    headroom = max(goal // 100 * headroom_percent, _LEAST_HEADROOM)
    goal = headroom if goal - headroom < headroom else goal - headroom
    return max(goal, marked)
