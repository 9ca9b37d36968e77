"""The profiler of the heap and allocs profiles.

It reads what the program's own memory profiler has sampled: it loads no BPF program and attaches no
probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError, TargetGone, UnsupportedTarget
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.heap.kind import ALLOCS, HEAP
from ebpfprof.profilers.profiler import RecordedData, Rights

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.heap_buckets import HeapBuckets, HeapCounts
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profilers.heap.stacks import HeapStacks
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_TICK_S: Final = 0.1
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


class HeapProfiler:
    """Reads buckets at each snapshot, and at the end of a recording."""

    tick_s = _TICK_S
    hit_ns = None

    def __init__(self, options: Options) -> None:
        self._fresh = bool(options["fresh_heap"])
        # Of kinds that nobody named, that a program lacks them is no error.
        self._is_asked = options.kinds_given
        self._buckets: dict[int, HeapBuckets] = {}
        self._targets: dict[int, GoTarget] = {}
        self._stacks: dict[int, HeapStacks] = {}
        self._last: dict[int, HeapCounts] = {}
        self._failures: dict[int, Exception] = {}
        self._refusals: dict[int, UnsupportedTarget] = {}
        self._is_over = False

    def load(self, goroutines: int) -> None:
        """Nothing to load."""

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
        self._targets[number] = go

    def start(self, _number: int) -> int:
        """Nothing to start. Returns now (CLOCK_MONOTONIC, ns)."""
        return kernel_now_ns()

    def stop(self, number: int) -> None:
        """Nothing to stop."""

    def note_end(self, number: int) -> None:
        """Read the buckets before the recording ends."""
        self._read(number)

    def end(self) -> None:
        """From now on snapshots have what note_end() read."""
        self._is_over = True

    def detach(self) -> None:
        """Nothing to detach."""

    def forget(self, number: int) -> None:
        """Delete all data of a process."""
        for kept in (self._buckets, self._targets, self._stacks, self._last):
            kept.pop(number, None)
        self._failures.pop(number, None)
        self._refusals.pop(number, None)

    def poll(self) -> None:
        """Nothing to do."""

    def runs(self, _number: int) -> tuple[Runs, Runs]:
        """No BPF program runs."""
        return Runs(), Runs()

    def losses(self) -> Sequence[Loss]:
        """Buckets that were not read."""
        kinds = tuple(each.name for each in _KINDS)
        corrupt = sum(each.corrupt for each in self._last.values())
        beyond = sum(each.beyond for each in self._last.values())
        counts = (
            ("heap_buckets_corrupt", "buckets of the memory profile that are corrupt", corrupt),
            ("heap_buckets_beyond", "processes with too many buckets to read them all", beyond),
        )
        return [Loss(name, text, count, kinds) for name, text, count in counts if count]

    def failures(self) -> Sequence[Exception]:
        """Why buckets could not be read."""
        refusals = self._refusals.values() if self._is_asked else ()
        return [*self._failures.values(), *refusals]

    def snapshot(self, number: int, *, settled: bool) -> RecordedData | None:
        """The buckets now, or at the end of the recording."""
        if number not in self._targets:
            return None
        if not self._is_over:
            self._read(number)
        return RecordedHeap(counts=self._last.get(number))

    def begin(self, _number: int) -> None:
        """No mark: a snapshot has all there is."""

    def read(self, number: int, _mark: None, *, restart: bool) -> RecordedData:
        """Never called, since begin() returns no mark."""
        raise NotImplementedError

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the profiles of the chosen kinds, which have the same samples."""
        from ebpfprof.profilers.heap.report import report
        from ebpfprof.profilers.heap.stacks import HeapStacks

        assert isinstance(found, RecordedHeap)
        go = self._targets[number]
        if number not in self._stacks:
            self._stacks[number] = HeapStacks(go.binary, go.load_bias, go.mappings)
        refusal = self._refusals.get(number)
        if refusal and not self._is_asked:
            builder.report.hints.append(str(refusal))
        report(found.counts, self._stacks[number], builder, fresh=self._fresh, why_not=refusal)

    def close(self) -> None:
        """The processes' own stacks of contexts close their memory."""

    def _read(self, number: int) -> None:
        from ebpfprof.goruntime.heap_buckets import require_profile

        buckets = self._buckets.get(number)
        if buckets is None:
            return
        try:
            require_profile(self._targets[number].target, buckets)
            self._last[number] = buckets.read()
            self._failures.pop(number, None)
        except TargetGone:
            pass  # it has no memory any more
        except UnsupportedTarget as error:
            self._refusals[number] = error
        except EbpfprofError as error:  # go on without it
            self._failures[number] = error
