"""The profiler of the heap and allocs profiles: reads what the program itself has sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError, UnsupportedTarget
from ebpfprof.kernel import uprobe_links
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.heap.kind import ALLOCS, HEAP
from ebpfprof.profilers.profiler import RecordedData, Rights
from ebpfprof.profilers.reading_profiler import ReadingProfiler

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, HeapCounts
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from ebpfprof.profilers.heap.allocation_counts import AllocationCounts
    from ebpfprof.profilers.heap.gate_recorder import GateRecorder
    from ebpfprof.profilers.heap.stacks import HeapStacks
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_KINDS: Final = (HEAP, ALLOCS)
_CORRUPT: Final = "buckets of the memory profile that are corrupt"
_BEYOND: Final = "memory profiles with too many buckets to read them all"


def open_profiler(targets: int, options: Options) -> HeapProfiler:
    """A profiler for so many processes."""
    return HeapProfiler(targets, options)


def rights(_options: Options) -> Rights:
    """Where the program keeps no profile: kernels without uprobe links require CAP_SYS_ADMIN."""
    return Rights(to_attach=not uprobe_links.is_offered())


@dataclass(slots=True, kw_only=True)
class RecordedHeap(RecordedData):
    """The buckets of a process at a moment, or what probes have counted; None without both."""

    counts: HeapCounts | AllocationCounts | None


class HeapProfiler(ReadingProfiler["HeapCounts | AllocationCounts"]):
    """Reads the buckets of processes; counts the allocations of those that have none."""

    look_every_s = 1.0

    def __init__(self, targets: int, options: Options) -> None:
        super().__init__()
        self._capacity, self._options = targets, options
        self._gates: GateRecorder | None = None
        self._fresh = bool(options["fresh_heap"])
        # Of kinds that nobody named, that a program lacks them is no error.
        self._is_asked = options.kinds_given
        self._buckets: dict[int, HeapBuckets] = {}
        self._stacks: dict[int, HeapStacks] = {}

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Open the memory of a Go process.

        Raises TargetGone or PermissionDenied, and CorruptBinary if its code is unknown.
        """
        from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, keeps_profile
        from ebpfprof.goruntime.process import for_user
        from ebpfprof.process.memory import Memory
        from ebpfprof.profilers.heap.stacks import HeapStacks
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
        at_gates = not keeps_profile(self._buckets[number], go.binary, opened.process)
        place = go.binary, go.load_bias, go.mappings
        self._stacks[number] = HeapStacks(*place, at_gates=at_gates)
        if at_gates:
            self._open_gates(number, go, memory, lambda: opened.others_ns(self))
        self.targets[number] = go

    def _open_gates(
        self, number: int, go: GoTarget, memory: Memory, others_ns: Callable[[], float]
    ) -> None:
        from ebpfprof.profilers.heap.gate_recorder import GateRecorder

        try:
            if self._gates is None:
                self._gates = GateRecorder(
                    self._capacity,
                    rate_bytes=self._options["alloc_rate"],
                    share=self._options.max_overhead / 100,
                )
            self._gates.open(number, go, self._stacks[number], memory, others_ns)
        except EbpfprofError:
            if self._is_asked:
                raise
            # Else look() says that the program keeps no profile, and the other kinds go on.

    @property
    def hit_ns(self) -> float | None:
        """What a probe hit costs a thread, in ns, without our program; None without probes."""
        return self._gates.hit_ns if self._gates else None

    def load(self, goroutines: int) -> None:
        """Load the program, where a process that is open already needs it. Raises as Profiler."""
        super().load(goroutines)
        if self._gates and any(map(self._gates_of, self.targets)):
            self._gates.load()

    def start(self, number: int) -> int:
        """Attach the probes of a process without a profile. Raises as Profiler."""
        began_ns = super().start(number)
        gates = self._gates_of(number)
        return gates.start(number) if gates else began_ns

    def stop(self, number: int) -> None:
        """Detach the probes; what was counted stays."""
        super().stop(number)
        if gates := self._gates_of(number):
            gates.stop(number)

    def end(self, number: int, at_ns: int) -> None:
        """Count no allocations after `at_ns`."""
        if gates := self._gates_of(number):
            gates.end(number, at_ns)

    def detach(self) -> None:
        """Detach all probes, after a last look at what they counted."""
        if self._gates:
            self._gates.stop_all()
        for number in self.targets:
            if self._gates_of(number):
                self._look(number)
        if self._gates:
            self._gates.detach()
        super().detach()

    def poll(self) -> None:
        """Look at processes whose time has come, and after collections."""
        super().poll()
        if self._gates:
            self._gates.poll()

    def has_probes(self, number: int) -> bool:
        """Of programs without a memory profile: at the gates."""
        return self._gates_of(number) is not None

    def runs(self, number: int) -> tuple[Runs, Runs]:
        """The runs at probes; no runs at CPU samples."""
        return (self._gates.runs(number) if self._gates else Runs()), Runs()

    def close(self) -> None:
        """Detach the probes and free their maps."""
        if self._gates:
            self._gates.close()
        super().close()

    def forget(self, number: int) -> None:
        """Delete all data of a process."""
        super().forget(number)
        if self._gates:
            self._gates.forget(number)
        self._buckets.pop(number, None)
        self._stacks.pop(number, None)

    def _gates_of(self, number: int) -> GateRecorder | None:
        return self._gates if self._gates and number in self._gates else None

    def losses(self) -> Sequence[Loss]:
        """Buckets that were not read."""
        kinds = tuple(each.name for each in _KINDS)
        found = []
        for number, each in self.last.items():
            counts = (
                ("heap_buckets_corrupt", _CORRUPT, getattr(each, "corrupt", 0)),
                ("heap_buckets_beyond", _BEYOND, int(getattr(each, "beyond", False))),
            )
            found += [Loss(name, text, n, kinds, number) for name, text, n in counts if n]
        return [*found, *(self._gates.losses() if self._gates else ())]

    def failures(self) -> Sequence[Exception]:
        """Why buckets could not be read."""
        found = [*super().failures(), *(self._gates.failures() if self._gates else ())]
        return [e for e in found if self._is_asked or not isinstance(e, UnsupportedTarget)]

    def look(self, number: int) -> HeapCounts | AllocationCounts:
        """The buckets now, or what was counted. Raises UnsupportedTarget without both."""
        from ebpfprof.goruntime.heap.heap_buckets import require_profile

        if gates := self._gates_of(number):
            return gates.look(number)
        require_profile(self.targets[number].target, self._buckets[number])
        return self._buckets[number].read()

    def recorded(self, number: int) -> RecordedData:
        """What the last look found."""
        return RecordedHeap(counts=self.last.get(number))

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the profiles of the chosen kinds, which have the same samples."""
        from ebpfprof.profilers.heap.report import report

        assert isinstance(found, RecordedHeap)
        problem = self.problems.get(number)
        if isinstance(problem, UnsupportedTarget) and not self._is_asked:
            builder.report.hints.append(str(problem))
        report(found.counts, self._stacks[number], builder, fresh=self._fresh, why_not=problem)
