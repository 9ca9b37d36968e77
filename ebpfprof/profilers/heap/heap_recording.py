"""The heap of one process: what the program itself has sampled, or what probes count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError, UnsupportedTarget
from ebpfprof.overhead.cost import Cost
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers.heap.kind import ALLOCS, HEAP
from ebpfprof.profilers.memory_reading import MemoryProfiler, MemoryRecording

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.heap.heap_buckets import HeapCounts
    from ebpfprof.profilers.heap.allocation_counts import AllocationCounts
    from ebpfprof.profilers.heap.gate_recording import GateProfiler, GateRecording
    from ebpfprof.profilers.heap.heap_profile import ReadHeap
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.recording import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_KINDS: Final = (HEAP, ALLOCS)
_CORRUPT: Final = "buckets of the memory profile that are corrupt"
_BEYOND: Final = "memory profiles with too many buckets to read them all"


class HeapRecording(MemoryRecording["HeapCounts | AllocationCounts"]):
    """Reads the buckets of one process, or counts its allocations if it has none."""

    read_every_s = 1.0

    def __init__(self, profiler: HeapProfiler, opened: OpenedProcess, slot: int) -> None:
        """Open the memory of a Go process; `slot` is its number in the maps of the program.

        Raises TargetGone or PermissionDenied, and CorruptBinary if its code is unknown.
        """
        from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, keeps_profile
        from ebpfprof.goruntime.process import for_user
        from ebpfprof.profilers.heap.heap_stacks import HeapStacks
        from symbolizer.codeanalysis.heap_globals import heap_globals
        from symbolizer.errors import SymbolizerError

        super().__init__()
        assert opened.go
        go = opened.go
        try:
            places = heap_globals(go.binary)
        except SymbolizerError as error:
            raise for_user(opened.process, error) from error
        memory = opened.process.memory
        self._process = opened.process
        self._is_fresh, self._is_asked = profiler.is_fresh, profiler.is_asked
        self._buckets = HeapBuckets(memory, go.binary.layout, places, go.load_bias)
        at_gates = not keeps_profile(self._buckets, go.binary, opened.process)
        place = go.binary, go.load_bias, go.mappings
        self._stacks = HeapStacks(*place, at_gates=at_gates)
        self.gates: GateRecording | None = None
        """Counts the allocations of a program that keeps no profile."""
        if at_gates:
            try:
                self.gates = profiler.gates().record(opened, slot, self._stacks, memory)
                self.has_probes = True
            except EbpfprofError:
                if self._is_asked:
                    raise
                # Else read() reports that the program keeps no profile, and other kinds go on.

    def start(self) -> int:
        """Attach the probes of a process without a profile. Raises as Recording.start."""
        began_ns = super().start()
        return self.gates.start() if self.gates else began_ns

    def end(self, at_ns: int) -> None:
        """Count no allocations after `at_ns`."""
        if self.gates:
            self.gates.windows.end(at_ns)

    def stop(self) -> None:
        """Detach the probes; what was counted stays."""
        super().stop()
        if self.gates:
            self.gates.windows.stop()

    def finish(self) -> None:
        """From now on sums() has what there was at the end of the recording."""
        if self.gates:
            self.read_again()
        super().finish()

    def cost(self) -> Cost:
        """The runs at probes."""
        return self.gates.cost() if self.gates else Cost()

    def losses(self) -> Sequence[Loss]:
        """Buckets that were not read, and what probes lost."""
        kinds = tuple(kind.name for kind in _KINDS)
        counts = (
            ("heap_buckets_corrupt", _CORRUPT, getattr(self.last, "corrupt", 0)),
            ("heap_buckets_beyond", _BEYOND, int(getattr(self.last, "beyond", False))),
        )
        lost = [Loss(name, text, n, kinds) for name, text, n in counts if n]
        return [*lost, *(self.gates.losses() if self.gates else ())]

    def failures(self) -> Sequence[Exception]:
        """Why buckets could not be read, or allocations not be counted."""
        errors = [*super().failures(), *(self.gates.failures() if self.gates else ())]
        return [e for e in errors if self._is_asked or not isinstance(e, UnsupportedTarget)]

    def read(self) -> HeapCounts | AllocationCounts:
        """The buckets now, or what was counted. Raises UnsupportedTarget without both."""
        from ebpfprof.goruntime.heap.heap_buckets import require_profile

        if self.gates:
            return self.gates.counts()
        require_profile(self._process, self._buckets)
        return self._buckets.read()

    def last_read(self) -> ReadHeap:
        """What was read last."""
        from ebpfprof.profilers.heap.heap_profile import ReadHeap

        return ReadHeap(counts=self.last)

    def report_whole(self, read: ReadHeap, builder: ReportBuilder) -> None:
        """Add the profiles of the chosen kinds, which have the same samples."""
        from ebpfprof.profilers.heap.heap_profile import report

        if isinstance(self.problem, UnsupportedTarget) and not self._is_asked:
            builder.report.hints.append(str(self.problem))
        report(read.counts, self._stacks, builder, fresh=self._is_fresh, why_not=self.problem)

    def close(self) -> None:
        """Delete its data in the maps of the program."""
        if self.gates:
            self.gates.close()


class HeapProfiler(MemoryProfiler[HeapRecording]):
    """Reads the buckets of processes; loads a program for those that have none."""

    def __init__(self, targets: int, options: Options) -> None:
        """For up to `targets` processes."""
        super().__init__(lambda opened, slot: HeapRecording(self, opened, slot))
        self._targets, self._options = targets, options
        self._gates: GateProfiler | None = None
        self.is_fresh = bool(options["fresh_heap"])
        """Whether to count allocations until now, and not until the latest collection."""
        self.is_asked = options.kinds_given
        """A default kind that the program lacks is not an error."""

    def gates(self) -> GateProfiler:
        """What counts allocations by probes. Raises what GateProfiler raises."""
        from ebpfprof.profilers.heap.gate_recording import GateProfiler

        if self._gates is None:
            self._gates = GateProfiler(self._targets, rate_bytes=self._options["alloc_rate"])
        return self._gates

    def load(self, goroutines: int) -> None:
        """Load the program, where a process that is open already needs it.

        Raises as LoadedProfiler.load.
        """
        if self._gates and any(recording.gates for recording in self.recordings):
            self._gates.load()

    def poll(self) -> None:
        """Read processes whose time has come, and followed objects after collections."""
        super().poll()
        if self._gates:
            self._gates.poll()

    def detach(self) -> None:
        """Detach all probes, after reading their counts again."""
        if self._gates:
            self._gates.stop_all()
        super().detach()
        if self._gates:
            self._gates.detach()

    def failures(self) -> Sequence[Exception]:
        """Why probes were removed early, or could not be removed."""
        failure = self._gates.program.failure if self._gates else None
        return [failure] if failure else []

    def close(self) -> None:
        """Detach the probes and free their maps."""
        if self._gates:
            self._gates.close()
