"""The size of the heap and its goal, read from a program's memory while it is traced.

They are two words of runtime.gcController, as Go's own tracer notes them (runtime/mgcpacer.go,
heapLive and heapGoal, Go 1.17 to 1.27): no probe, and no cost for the program.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.heap.heap_goal import BEYOND_MEMORY, heap_goal
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.timeline.model import HeapSize
from symbolizer.codeanalysis.memory_globals import memory_globals
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ebpfprof.goruntime.process import GoTarget
    from symbolizer.go.runtime_layout import RuntimeLayout

_STRUCT: Final = "gcControllerState"
_EVERY_NS: Final = 10_000_000
_MOST: Final = 50_000  # about 8 MB


class HeapCounters:
    """Samples the heap of one process up to a hundred times a second."""

    def __init__(self, go: GoTarget, last_s: float | None) -> None:
        """With `last_s`, keep what is enough for that time, in bounded memory; else all.

        Raises TargetGone or PermissionDenied.
        """
        layout = go.binary.layout
        self._layout = layout
        self._every_ns = max(_EVERY_NS, int((last_s or 0) * 1e9 / _MOST))
        self._due_ns = 0
        self._found: deque[HeapSize] = deque(maxlen=_MOST if last_s is not None else None)
        self._address: int | None = None
        with suppress(SymbolizerError):  # compiled without optimization, for example
            self._address = memory_globals(go.binary).controller + go.load_bias
        self._memory = go.target.memory

    def sample(self) -> None:
        """Take a sample, unless that was done just now; only changes are kept."""
        now_ns = kernel_now_ns()
        if self._address is None or now_ns < self._due_ns:
            return
        self._due_ns = now_ns + self._every_ns
        try:
            data = self._memory.read(self._address, self._layout.size(_STRUCT))
        except (TargetGone, UnreadableMemory):
            return

        def word(name: str) -> int:
            at = self._layout.offset(_STRUCT, name)
            return int.from_bytes(data[at : at + 8], "little")

        size = heap_size(now_ns, word, self._layout)
        if size and (not self._found or size[1:] != self._found[-1][1:]):
            self._found.append(size)

    def between(self, begin_ns: int, end_ns: int) -> tuple[HeapSize, ...]:
        """What was found in that time; first what it was at its begin."""
        sizes = tuple(self._found)  # another thread may take a sample meanwhile
        before = [moment for moment in sizes if moment.at_ns <= begin_ns][-1:]
        inside = [moment for moment in sizes if begin_ns < moment.at_ns <= end_ns]
        return (*(moment._replace(at_ns=begin_ns) for moment in before), *inside)


def heap_size(at_ns: int, word: Callable[[str], int], layout: RuntimeLayout) -> HeapSize | None:
    """The size of the heap, of words of runtime.gcController by their names.

    None if the words say that it is larger than any memory.
    """
    live = word("heapLive")
    if live >= BEYOND_MEMORY:
        return None
    return HeapSize(at_ns, live, heap_goal(word, layout))
