"""Records allocations of processes whose own memory profile is off, by probes at its gates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.goruntime.heap.survivors import Survivors
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Runs
from ebpfprof.process.memory import UnreadableMemory
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
    from ebpfprof.kernel.losses import Loss
    from ebpfprof.process.memory import Memory
    from ebpfprof.profilers.heap.gate_tables import AllocatingStack
    from ebpfprof.profilers.heap.stacks import HeapStacks

_THIN_BY: Final = 4
_GONE: Final = (TargetGone, UnreadableMemory)


@dataclass(slots=True)
class _Recorded:
    go: GoTarget
    stacks: HeapStacks
    statistics: MemoryStatisticsReader | None
    followed: Followed | None
    windows: GateWindows = field(init=False)
    in_use: dict[int, tuple[int, int]] | None = None


class GateRecorder(Closing):
    """The probes of any number of processes, each with a number."""

    def __init__(self, targets: int, *, rate_bytes: int, share: float) -> None:
        """Start to compile for up to `targets` processes. Raises what GateProgram raises.

        Of `rate_bytes` bytes one object is sampled, on average. Probes may take `share` of a
        process's CPU time, 0 to 1; 0 sets no bound.
        """
        self._program = GateProgram(targets, rate_bytes)
        self._rate, self._share = rate_bytes, share
        self._recorded: dict[int, _Recorded] = {}
        self._lock = threading.Lock()  # of births and followed objects

    def __contains__(self, number: int) -> bool:
        return number in self._recorded

    def open(
        self,
        number: int,
        go: GoTarget,
        stacks: HeapStacks,
        memory: Memory,
        others_ns: Callable[[], float],
    ) -> None:
        """Find the gates. Raises CorruptBinary if the code is unknown, or what Memory raises."""
        try:
            gates = allocation_gates(go.binary)
        except SymbolizerError as error:
            raise for_user(go.target, error) from error
        each = _Recorded(go, stacks, None, None)
        sweepgen = None
        with suppress(GoTableError):  # without its variables, allocations are counted all the same
            found = memory_globals(go.binary)
            each.statistics = MemoryStatisticsReader(memory, go.binary, found, go.load_bias)
            survivors = Survivors(memory, go.binary, found.heap + go.load_bias, go.load_bias)
            each.followed = Followed(survivors)
            sweepgen = survivors.generation_address
        self._program.open(number, go, gates, sweepgen)
        each.windows = GateWindows(
            *(self._program, number, go),
            rate_bytes=self._rate,
            share=self._share,
            others_ns=others_ns,
            allocated=lambda: _allocated(each),
            note_window=lambda weight: self._note_window(number, weight),
        )
        self._recorded[number] = each

    def load(self) -> None:
        """Load the program, if that is not done. Raises what GateProgram.load() raises."""
        self._program.load()

    def start(self, number: int) -> int:
        """Attach the probes and count. Returns when (CLOCK_MONOTONIC, ns). Raises as Profiler."""
        self._program.load()
        each = self._recorded[number]
        with self._lock:
            if each.followed is not None:
                each.followed.begin()
        return each.windows.start()

    def stop(self, number: int) -> None:
        """Detach the probes; sums stay."""
        self._recorded[number].windows.stop()

    def end(self, number: int, at_ns: int) -> None:
        """Count no allocations of a process after `at_ns` (CLOCK_MONOTONIC)."""
        self._recorded[number].windows.end(at_ns)

    def stop_all(self) -> None:
        """Detach the probes of all processes; sums stay."""
        for each in self._recorded.values():
            each.windows.end(kernel_now_ns())
        for each in self._recorded.values():
            each.windows.stop()

    def detach(self) -> None:
        """Detach all probes; sums stay readable."""
        self._program.detach()

    def forget(self, number: int) -> None:
        """Delete all data of a process that is not recorded."""
        if self._recorded.pop(number, None):
            self._program.forget(number)

    def poll(self) -> None:
        """See which objects are still there after a collection."""
        with self._lock:
            self._look()

    def look(self, number: int) -> AllocationCounts:
        """What is known now; of an ended process, what was known last.

        Raises TargetGone.
        """
        each = self._recorded[number]
        sums, missed = each.windows.found(lambda stack: _shown(stack, each.stacks))

        def stack_of(key: int) -> AllocatingStack | None:
            stack = self._program.tables.stack(key)
            return stack and _shown(stack, each.stacks)

        with self._lock:
            self._look()
            following = None
            if each.followed is not None:
                following = each.followed.found(self._program.told_rate, stack_of)
        with suppress(*_GONE):
            if each.statistics:
                classes = each.statistics.read().classes
                each.in_use = {kind.size or LARGE: (kind.objects, kind.used) for kind in classes}
        return allocation_counts(sums, missed, following, each.in_use)

    @property
    def hit_ns(self) -> float | None:
        """What a probe hit costs a thread, in ns, without our program; None if unknown."""
        return self._program.hit_ns

    def runs(self, number: int) -> Runs:
        """What the probes of a process cost so far."""
        return self._program.runs(number) if self._program.is_loaded else Runs()

    def losses(self) -> Sequence[Loss]:
        """What it lost so far of each process."""
        return self._program.losses()

    def failures(self) -> list[Exception]:
        """The errors because of which data is missing."""
        found = (self._program.failure, *(each.windows.failure for each in self._recorded.values()))
        return [failure for failure in found if failure]

    def close(self) -> None:
        """Detach the probes and free the maps."""
        self.stop_all()
        self._program.close()

    def _note_window(self, number: int, weight: float) -> None:
        with self._lock:
            self._take_births()
            followed = self._recorded[number].followed
            if followed is not None:
                followed.note_window(weight)

    def _look(self) -> None:
        self._take_births()
        for each in self._recorded.values():
            if each.followed is not None:
                with suppress(*_GONE):
                    each.followed.look()
        # Ever fewer, so that a look stays short.
        all_of = [each.followed for each in self._recorded.values() if each.followed is not None]
        while max(map(len, all_of), default=0) > MOST_FOLLOWED:
            self._program.tell_fewer(_THIN_BY * self._program.told_rate)
            for followed in all_of:
                followed.thin(self._program.told_rate)

    def _take_births(self) -> None:
        if not self._program.is_loaded:
            return  # nothing was started yet
        births = self._program.tables.births()
        for number, each in self._recorded.items():
            ours = births[births["target"] == number]
            if each.followed is not None and len(ours):
                each.followed.add(ours)
                each.followed.thin(self._program.told_rate)


def _shown(stack: AllocatingStack, stacks: HeapStacks) -> AllocatingStack:
    try:
        return stack._replace(return_pcs=stacks.shown_alike(stack.return_pcs))
    except GoTableError:  # the report will say so
        return stack


def _allocated(each: _Recorded) -> dict[int, float]:
    """How many bytes the process has allocated until now, by size class. Raises TargetGone."""
    if not each.statistics:
        return {}
    found = each.statistics.read()
    small = {kind.size: float(kind.size * kind.mallocs) for kind in found.classes if kind.size}
    return {LARGE: found.total_allocated - sum(small.values()), **small}
