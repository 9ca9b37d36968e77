"""Finds what fills the heap: stacks, in the program's own memory profile; else types."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.findings.runtime import GrowingStack
from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, HeapCounts
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profilers.heap.buckets import scaled
from ebpfprof.profilers.heap.heap_stacks import HeapStacks
from symbolizer.codeanalysis.heap_globals import heap_globals
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.memory import TypeBytes

_MOST: Final = 3
_LEAST_SHARE: Final = 0.05  # of all that was added
_ENDS: Final = (EbpfprofError, SymbolizerError, UnreadableMemory)


class HeapGrowthReader:
    """Compares the program's memory profile at two moments. Without one, it finds nothing."""

    def __init__(self, go: GoTarget) -> None:
        self._go = go
        self._buckets: HeapBuckets | None = None
        self._before: dict[tuple[int, ...], int] = {}

    def start(self) -> None:
        """Read the profile at the beginning."""
        go = self._go
        with suppress(*_ENDS):  # then it finds nothing
            buckets = HeapBuckets(
                go.target.memory, go.binary.layout, heap_globals(go.binary), go.load_bias
            )
            if buckets.rate() > 0:
                self._before, self._buckets = _in_use(buckets.read()), buckets

    def growing(self) -> tuple[GrowingStack, ...]:
        """The stacks of which most more bytes are in use than at the beginning."""
        if self._buckets is None:
            return ()
        with suppress(*_ENDS):  # then it finds nothing
            after = _in_use(self._buckets.read())
            more = {stack: used - self._before.get(stack, 0) for stack, used in after.items()}
            least = _LEAST_SHARE * sum(used for used in more.values() if used > 0)
            most = sorted(more, key=lambda stack: -more[stack])[:_MOST]
            stacks = HeapStacks(self._go.binary, self._go.load_bias, self._go.mappings)
            stacks.look_up(most)
            return tuple(
                GrowingStack(frames, more[stack])
                for stack in most
                if more[stack] > least
                and (
                    frames := tuple(
                        frame for location in stacks.of(stack) for frame in location.frames
                    )
                )
            )
        return ()

    def types(self) -> tuple[TypeBytes, ...]:
        """The types of which most bytes are in use, by Go 1.22 and later; () if unknown.

        This reads the beginning of each object, or a sample of a very large heap.
        """
        from ebpfprof.goruntime.heap.memory_reader import read_memory  # few programs grow

        go = self._go
        with suppress(*_ENDS):  # then they are unknown
            memory = read_memory(go.target, go.binary, go.load_bias)
            return (memory.types or ())[:_MOST]
        return ()


def _in_use(counts: HeapCounts) -> dict[tuple[int, ...], int]:
    """Bytes in use by stack, scaled as in Go's profile."""
    in_use: dict[tuple[int, ...], int] = {}
    objects = (counts.allocs - counts.frees).tolist()
    for stack, size, number in zip(counts.stacks, counts.sizes.tolist(), objects, strict=True):
        if number > 0:
            in_use[stack] = in_use.get(stack, 0) + scaled(number, size, counts.rate)[1]
    return in_use
