"""What profilers have in common that read a process's memory when they are asked.

They load no BPF program and attach no probe.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ebpfprof.errors import EbpfprofError, TargetGone
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.profiler import HasSnapshots, RecordedData

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget

_TICK_S: Final = 0.1
_MOST_CPU: Final = 0.02  # of a processor, for looks of one process
Found = TypeVar("Found")


class ReadingProfiler(HasSnapshots, ABC, Generic[Found]):
    """Reads at each snapshot, and at the end of a recording. See profilers.profiler.Profiler.

    A subclass opens processes in open(), puts them into `targets`, and reads them in look().
    `last` has what was read last of each process, by its number, `problems` why it could not be.
    """

    tick_s = _TICK_S
    look_every_s: float | None = None
    """How often to look while it records, so that something is left of a process that ends.

    Less often where that would take more than 2 % of a processor.
    """

    @property
    def hit_ns(self) -> float | None:
        """None: there are no probes."""
        return None

    def __init__(self) -> None:
        self.targets: dict[int, GoTarget] = {}
        self.last: dict[int, Found] = {}
        self.problems: dict[int, Exception] = {}
        self._is_over = False
        self._due_s: dict[int, float] = {}  # time.monotonic(), of those that are recorded

    @abstractmethod
    def look(self, number: int) -> Found:
        """Read a process now. Raises any of ebpfprof.errors."""

    @abstractmethod
    def recorded(self, number: int) -> RecordedData:
        """What a report needs of what was read last."""

    def load(self, goroutines: int) -> None:
        """Nothing to load."""

    def start(self, number: int) -> int:
        """Look now and then. Returns now (CLOCK_MONOTONIC, ns)."""
        self._due_s[number] = time.monotonic() + (self.look_every_s or 0.0)
        return kernel_now_ns()

    def note_end(self, number: int) -> None:
        """Read before the recording ends."""
        self._look(number)

    def end(self, number: int, at_ns: int) -> None:
        """Nothing ends: what counts is a moment."""

    def stop(self, number: int) -> None:
        """Look no longer."""
        self._due_s.pop(number, None)

    def detach(self) -> None:
        """From now on snapshots have what note_end() read."""
        self._is_over = True

    def forget(self, number: int) -> None:
        """Delete all data of a process."""
        for kept in (self.targets, self.last, self.problems):
            kept.pop(number, None)

    def poll(self) -> None:
        """Look at processes whose time has come."""
        if self.look_every_s is None:
            return
        for number, due_s in list(self._due_s.items()):
            began_s = time.monotonic()
            if began_s >= due_s:
                self._look(number)
                took_s = time.monotonic() - began_s
                self._due_s[number] = began_s + max(self.look_every_s, took_s / _MOST_CPU)

    def has_probes(self, _number: int) -> bool:
        """It reads memory."""
        return False

    def runs(self, _number: int) -> tuple[Runs, Runs]:
        """No BPF program runs."""
        return Runs(), Runs()

    def failures(self) -> Sequence[Exception]:
        """Why processes could not be read."""
        return list(self.problems.values())

    def snapshot(self, number: int, *, settled: bool) -> RecordedData | None:
        """What there is now, or at the end of the recording."""
        if number not in self.targets:
            return None
        if not self._is_over:
            self._look(number)
        return self.recorded(number)

    def close(self) -> None:
        """The processes' own stacks of contexts close their memory."""

    def _look(self, number: int) -> None:
        if number not in self.targets:
            return
        try:
            self.last[number] = self.look(number)
            self.problems.pop(number, None)
        except TargetGone:
            pass  # it has no memory any more
        except EbpfprofError as error:  # go on without it
            self.problems[number] = error
