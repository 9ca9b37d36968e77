"""Counts allocations of processes whose own memory profile is off, by probes at its gates."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.goruntime.heap.survivors import Survivors
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Cost
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.losses import losses_of, losses_since
from ebpfprof.profilers.heap.allocation_counts import AllocationCounts, allocation_counts
from ebpfprof.profilers.heap.allocation_sums import LARGE
from ebpfprof.profilers.heap.followed import MOST_FOLLOWED, Followed
from ebpfprof.profilers.heap.gate_program import GateProgram
from ebpfprof.profilers.heap.gate_windows import GateWindows
from ebpfprof.system.closing import Closing
from symbolizer.codeanalysis.allocation_gates import allocation_gates
from symbolizer.codeanalysis.memory_globals import memory_globals
from symbolizer.errors import GoTableError, SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from ebpfprof.profile.losses import Loss
    from ebpfprof.profilers.heap.gate_tables import AllocatingStack
    from ebpfprof.profilers.heap.heap_stacks import HeapStacks
    from ebpfprof.profilers.recording import OpenedProcess

_THIN_BY: Final = 4
_GONE: Final = (TargetGone, UnreadableMemory)


class GateRecording:
    """The allocations of one process, and which of its objects are still there."""

    def __init__(
        self,
        profiler: GateProfiler,
        opened: OpenedProcess,
        slot: int,
        stacks: HeapStacks,
        memory: Memory,
    ) -> None:
        """Find the gates. Raises CorruptBinary if the code is unknown, or what Memory raises."""
        assert opened.go
        go: GoTarget = opened.go
        try:
            gates = allocation_gates(go.binary)
        except SymbolizerError as error:
            raise for_user(go.target, error, go.path) from error
        self.slot = slot
        self.followed: Followed | None = None
        """Its objects that are followed; None if the program's variables are unknown."""
        self._profiler, self._stacks = profiler, stacks
        self._statistics: MemoryStatisticsReader | None = None
        self._in_use: dict[int, tuple[int, int]] | None = None
        program, sweepgen = profiler.program, None
        with suppress(GoTableError):  # without its variables, allocations are counted anyway
            places = memory_globals(go.binary)
            self._statistics = MemoryStatisticsReader(memory, go.binary, places, go.load_bias)
            survivors = Survivors(memory, go.binary, places.heap + go.load_bias, go.load_bias)
            self.followed = Followed(survivors)
            sweepgen = survivors.generation_address
        self._before = program.runs(slot), losses_of(program.losses(), slot)
        program.open(slot, go, gates, sweepgen)
        self.windows = GateWindows(
            *(program, slot, go),
            rate_bytes=profiler.rate_bytes,
            lease=opened.budget.lease(self.cost),
            allocated=self._allocated,
            note_window=self._note_window,
        )
        """When allocations are counted."""

    def start(self) -> int:
        """Attach the probes and count. Returns when (CLOCK_MONOTONIC, ns).

        Raises as Recording.start.
        """
        self._profiler.load()
        with self._profiler.lock:
            if self.followed is not None:
                self.followed.begin()
        return self.windows.start()

    def counts(self) -> AllocationCounts:
        """What is known now; of an ended process, what was known last. Raises TargetGone."""
        sums, missed = self.windows.found(self._shown)
        tables, reported_rate = self._profiler.program.tables, self._profiler.program.reported_rate

        def stack_of(key: int) -> AllocatingStack | None:
            stack = tables.stack(key)
            return stack and self._shown(stack)

        with self._profiler.lock:
            self._profiler.drop_gone()
            following = None
            if self.followed is not None:
                following = self.followed.found(reported_rate, stack_of)
        with suppress(*_GONE):  # the last statistics stay
            if self._statistics:
                classes = self._statistics.read().classes
                self._in_use = {
                    size_class.size or LARGE: (size_class.objects, size_class.used)
                    for size_class in classes
                }
        return allocation_counts(sums, missed, following, self._in_use)

    def cost(self) -> Cost:
        """The runs at probes."""
        program = self._profiler.program
        return Cost(program.runs(self.slot) - self._before[0], hit_ns=program.hit_ns)

    def losses(self) -> Sequence[Loss]:
        """What it lost so far."""
        return losses_since(losses_of(self._profiler.program.losses(), self.slot), self._before[1])

    def failures(self) -> list[Exception]:
        """Why the recording ended early."""
        return [self.windows.failure] if self.windows.failure else []

    def close(self) -> None:
        """Delete its data in the maps; it is not recorded."""
        self._profiler.forget(self)

    def _note_window(self, weight: float) -> None:
        with self._profiler.lock:
            self._profiler.take_births()
            if self.followed is not None:
                self.followed.note_window(weight)

    def _shown(self, stack: AllocatingStack) -> AllocatingStack:
        try:
            return stack._replace(return_pcs=self._stacks.shown_alike(stack.return_pcs))
        except GoTableError:  # the report will say so
            return stack

    def _allocated(self) -> dict[int, float]:
        """How many bytes the process has allocated until now, by size class. Raises TargetGone."""
        if not self._statistics:
            return {}
        statistics = self._statistics.read()
        small = {
            size_class.size: float(size_class.size * size_class.mallocs)
            for size_class in statistics.classes
            if size_class.size
        }
        return {LARGE: statistics.total_allocated - sum(small.values()), **small}


class GateProfiler(Closing):
    """The probes of any number of processes, and the objects that are followed."""

    def __init__(self, targets: int, *, rate_bytes: int) -> None:
        """Start to compile for up to `targets` processes. Raises what GateProgram raises.

        Of `rate_bytes` bytes one object is sampled, on average.
        """
        self.program = GateProgram(targets, rate_bytes)
        self.rate_bytes = rate_bytes
        self.lock = threading.Lock()
        """Of births and followed objects."""
        self._recordings: dict[int, GateRecording] = {}  # by slot

    def record(
        self, opened: OpenedProcess, slot: int, stacks: HeapStacks, memory: Memory
    ) -> GateRecording:
        """The recording of a process, not started yet. Raises what GateRecording raises."""
        recording = self._recordings[slot] = GateRecording(self, opened, slot, stacks, memory)
        opened.held.callback(self._recordings.pop, slot, None)
        return recording

    def load(self) -> None:
        """Load the program, if that is not done. Raises what GateProgram.load() raises."""
        self.program.load()

    def stop_all(self) -> None:
        """Detach the probes of all processes; sums stay."""
        for recording in self._recordings.values():
            recording.windows.end(kernel_now_ns())
        for recording in self._recordings.values():
            recording.windows.stop()

    def detach(self) -> None:
        """Detach all probes; sums stay readable."""
        self.program.detach()

    def forget(self, recording: GateRecording) -> None:
        """Delete all data of a process that is not recorded."""
        if self._recordings.pop(recording.slot, None):
            self.program.forget(recording.slot)

    def poll(self) -> None:
        """Drop the objects that a collection has found gone."""
        with self.lock:
            self.drop_gone()

    def drop_gone(self) -> None:
        """The same for a caller that holds the lock."""
        self.take_births()
        all_of = [
            recording.followed
            for recording in self._recordings.values()
            if recording.followed is not None
        ]
        for followed in all_of:
            with suppress(*_GONE):  # its objects stay as they were
                followed.check()
        # Ever fewer, so that this stays short.
        while max(map(len, all_of), default=0) > MOST_FOLLOWED:
            self.program.report_fewer(_THIN_BY * self.program.reported_rate)
            for followed in all_of:
                followed.thin(self.program.reported_rate)

    def take_births(self) -> None:
        """Follow new objects, for a caller that holds the lock."""
        if not self.program.is_loaded:
            return  # nothing was started yet
        births = self.program.tables.births()
        for slot, recording in self._recordings.items():
            ours = births[births["target"] == slot]
            if recording.followed is not None and len(ours):
                recording.followed.add(ours)
                recording.followed.thin(self.program.reported_rate)

    def close(self) -> None:
        """Detach the probes and free the maps."""
        self.stop_all()
        self.program.close()
