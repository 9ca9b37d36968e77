"""What recordings have in common that read a process's memory: no BPF program, no probe."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from ebpfprof.errors import EbpfprofError, TargetGone
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Cost
from ebpfprof.profilers.recording import Recording

if TYPE_CHECKING:
    from ebpfprof.profile.losses import Loss
    from ebpfprof.profilers.recording import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder, WholeSums

_TICK_S: Final = 0.1
_TICK_EACH_S: Final = 0.002
_MOST_CPU: Final = 0.02  # of a processor, to read one process
Found = TypeVar("Found")


class MemoryRecording(ABC, Generic[Found]):
    """Reads one process at each sums(), and at the end. See profilers.recording.Recording.

    `last` is what was read last, `problem` why it could not be read.
    """

    has_probes: bool = False
    read_every_s: ClassVar[float | None] = None
    """How often to read while it records, so that something is left of a process that ends.

    Less often where that would take more than 2 % of a processor.
    """

    def __init__(self) -> None:
        self.last: Found | None = None
        self.problem: Exception | None = None
        self._is_over = False
        self._is_started = False
        self._due_s: float | None = None  # time.monotonic(), while it records

    @abstractmethod
    def read(self) -> Found:
        """Read the process now. Raises any of ebpfprof.errors."""

    @abstractmethod
    def last_read(self) -> Any:  # noqa: ANN401 - its own
        """What report_whole() needs of what was read last."""

    @abstractmethod
    def report_whole(self, read: Any, builder: ReportBuilder) -> None:  # noqa: ANN401 - its own
        """Add the profiles of what last_read() returned."""

    def start(self) -> int:
        """Begin to read at times. Returns now (CLOCK_MONOTONIC, ns)."""
        self._is_started = True
        self._due_s = time.monotonic() + (self.read_every_s or 0.0)
        return kernel_now_ns()

    def note_end(self) -> None:
        """Read before the recording ends."""
        self.read_again()

    def end(self, at_ns: int) -> None:
        """Nothing ends: what counts is a moment."""

    def stop(self) -> None:
        """Read no more at times."""
        self._due_s = None

    def finish(self) -> None:
        """From now on sums() has what was read last."""
        self._is_over = True

    def poll(self) -> None:
        """Read if that is due."""
        began_s = time.monotonic()
        if self.read_every_s is None or self._due_s is None or began_s < self._due_s:
            return
        self.read_again()
        took_s = time.monotonic() - began_s
        self._due_s = began_s + max(self.read_every_s, took_s / _MOST_CPU)

    def sums(self) -> WholeSums[Any] | None:
        """What there is now, or at the end of the recording; None before the first start."""
        if not self._is_started:
            return None
        if not self._is_over:
            self.read_again()
        from ebpfprof.profilers.report_builder import WholeSums

        return WholeSums(self.last_read())

    def report(
        self, sums: WholeSums[Any], since: WholeSums[Any] | None, builder: ReportBuilder
    ) -> None:
        """Add the profiles of the chosen kinds."""
        builder.add_since(self.report_whole, sums, since)

    def cost(self) -> Cost:
        """No BPF program runs."""
        return Cost()

    def losses(self) -> Sequence[Loss]:
        """None."""
        return ()

    def failures(self) -> Sequence[Exception]:
        """Why the process could not be read."""
        return [self.problem] if self.problem else []

    def close(self) -> None:
        """The process's own stack of contexts closes its memory."""

    def read_again(self) -> None:
        """Read now, unless the process has ended."""
        try:
            self.last = self.read()
            self.problem = None
        except TargetGone:
            pass  # it has no memory any more
        except EbpfprofError as error:  # continue without it
            self.problem = error


class PolledRecording(Recording, Protocol):
    """A recording of a MemoryProfiler."""

    def poll(self) -> None:
        """Do the regular work."""

    def finish(self) -> None:
        """All recordings have ended: from now on sums() has what there was then."""


Polled = TypeVar("Polled", bound=PolledRecording)


class MemoryProfiler(Generic[Polled]):
    """Any number of recordings without a BPF program. See profilers.recording.LoadedProfiler."""

    def __init__(self, make: Callable[[OpenedProcess, int], Polled]) -> None:
        """`make` makes the recording of a process with a slot. Raises any of ebpfprof.errors."""
        self._make = make
        self.recordings: list[Polled] = []

    @property
    def tick_s(self) -> float:
        """The time until the next poll(), in seconds: with many processes it takes long."""
        return max(_TICK_S, _TICK_EACH_S * len(self.recordings))

    def load(self, goroutines: int) -> None:
        """Nothing to load."""

    def record(self, opened: OpenedProcess, slot: int) -> Polled:
        """The recording of a process, not started yet. Raises what making it raises."""
        recording = self._make(opened, slot)
        self.recordings.append(recording)
        opened.held.callback(self.recordings.remove, recording)
        return recording

    def poll(self) -> None:
        """Do the regular work of all recordings."""
        for recording in self.recordings:
            recording.poll()

    def detach(self) -> None:
        """From now on sums have what there was at the end of the recording."""
        for recording in self.recordings:
            recording.finish()

    def losses(self) -> Sequence[Loss]:
        """Each recording has its own."""
        return ()

    def failures(self) -> Sequence[Exception]:
        """Each recording has its own."""
        return ()

    def close(self) -> None:
        """The processes' own stacks of contexts close their memory."""
