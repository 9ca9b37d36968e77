"""The profiler of the heap and allocs profiles: reads what the program itself has sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import UnsupportedTarget
from ebpfprof.kernel.losses import Loss
from ebpfprof.profilers.heap.kind import ALLOCS, HEAP
from ebpfprof.profilers.profiler import RecordedData, Rights
from ebpfprof.profilers.reading_profiler import ReadingProfiler

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.heap_buckets import HeapBuckets, HeapCounts
    from ebpfprof.profilers.heap.stacks import HeapStacks
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_KINDS: Final = (HEAP, ALLOCS)


def open_profiler(_targets: int, options: Options) -> HeapProfiler:
    """A profiler for any number of processes."""
    return HeapProfiler(options)


def rights(_options: Options) -> Rights:
    """Reading memory needs no CAP_SYS_ADMIN."""
    return Rights()


@dataclass(slots=True, kw_only=True)
class RecordedHeap(RecordedData):
    """The buckets of a process at a moment; None if they could not be read."""

    counts: HeapCounts | None


class HeapProfiler(ReadingProfiler["HeapCounts"]):
    """Reads the buckets of processes."""

    look_every_s = 1.0

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._fresh = bool(options["fresh_heap"])
        # Of kinds that nobody named, that a program lacks them is no error.
        self._is_asked = options.kinds_given
        self._buckets: dict[int, HeapBuckets] = {}
        self._stacks: dict[int, HeapStacks] = {}

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Open the memory of a Go process.

        Raises TargetGone or PermissionDenied, and CorruptBinary without a memory profile.
        """
        from ebpfprof.goruntime.heap_buckets import HeapBuckets
        from ebpfprof.goruntime.process import for_user
        from ebpfprof.process.memory import Memory
        from symbolizer.codeanalysis.heap_globals import heap_globals
        from symbolizer.errors import SymbolizerError

        go = opened.go
        if go is None:
            return
        try:
            found = heap_globals(go.binary)
        except SymbolizerError as error:
            raise for_user(opened.process, error) from error
        memory = opened.held.enter_context(Memory(opened.process))
        self._buckets[number] = HeapBuckets(memory, go.binary.layout, found, go.load_bias)
        self.targets[number] = go

    def forget(self, number: int) -> None:
        """Delete all data of a process."""
        super().forget(number)
        self._buckets.pop(number, None)
        self._stacks.pop(number, None)

    def losses(self) -> Sequence[Loss]:
        """Buckets that were not read."""
        kinds = tuple(each.name for each in _KINDS)
        corrupt = sum(each.corrupt for each in self.last.values())
        beyond = sum(each.beyond for each in self.last.values())
        counts = (
            ("heap_buckets_corrupt", "buckets of the memory profile that are corrupt", corrupt),
            ("heap_buckets_beyond", "processes with too many buckets to read them all", beyond),
        )
        return [Loss(name, text, count, kinds) for name, text, count in counts if count]

    def failures(self) -> Sequence[Exception]:
        """Why buckets could not be read."""
        found = super().failures()
        return [e for e in found if self._is_asked or not isinstance(e, UnsupportedTarget)]

    def look(self, number: int) -> HeapCounts:
        """The buckets now. Raises UnsupportedTarget if the program has none."""
        from ebpfprof.goruntime.heap_buckets import require_profile

        require_profile(self.targets[number].target, self._buckets[number])
        return self._buckets[number].read()

    def recorded(self, number: int) -> RecordedData:
        """The buckets of the last look."""
        return RecordedHeap(counts=self.last.get(number))

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the profiles of the chosen kinds, which have the same samples."""
        from ebpfprof.profilers.heap.report import report
        from ebpfprof.profilers.heap.stacks import HeapStacks

        assert isinstance(found, RecordedHeap)
        go = self.targets[number]
        if number not in self._stacks:
            self._stacks[number] = HeapStacks(go.binary, go.load_bias, go.mappings)
        problem = self.problems.get(number)
        if isinstance(problem, UnsupportedTarget) and not self._is_asked:
            builder.report.hints.append(str(problem))
        report(found.counts, self._stacks[number], builder, fresh=self._fresh, why_not=problem)
