"""What the words of a program's memory say of its heap, which may be any words."""

from __future__ import annotations

from ebpfprof.timeline.model import HeapSize
from ebpfprof.tracing.heap_counters import heap_size
from symbolizer import GoVersion, layout_for

LAYOUT = layout_for(GoVersion.parse("go1.27.3"))

WORDS = {
    **{"heapLive": 4 << 20, "gcPercentHeapGoal": 8 << 20, "sweepDistMinTrigger": 0},
    **{"triggered": (1 << 64) - 1, "memoryLimit": (1 << 63) - 1, "mappedReady": 16 << 20},
    **{"heapMarked": 2 << 20, "totalAlloc": 9 << 20, "totalFree": 5 << 20, "heapFree": 1 << 20},
}


def test_the_size_and_the_goal_are_those_of_the_words() -> None:
    assert heap_size(7, WORDS.__getitem__, LAYOUT) == HeapSize(7, 4 << 20, 8 << 20)


def test_a_size_beyond_any_memory_is_none() -> None:
    for live in ((1 << 64) - 1, 1 << 63, 1 << 56):
        assert heap_size(7, {**WORDS, "heapLive": live}.__getitem__, LAYOUT) is None


def test_without_a_goal_there_is_the_size() -> None:
    words = {**WORDS, "gcPercentHeapGoal": (1 << 64) - 1}
    assert heap_size(7, words.__getitem__, LAYOUT) == HeapSize(7, 4 << 20, None)


def test_old_versions_store_the_goal() -> None:
    words = {"heapLive": 4 << 20, "heapGoal": 6 << 20}
    old = layout_for(GoVersion.parse("go1.18.10"))
    assert heap_size(7, words.__getitem__, old) == HeapSize(7, 4 << 20, 6 << 20)
