"""The protocol of profilers: each records some kinds of profiles, of any number of processes.

Each module that ProfileKind.profiler names has two functions: open_profiler(targets, options)
returns a Profiler, rights(options) the Rights that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Runs
from ebpfprof.process.process import Target

if TYPE_CHECKING:
    from ebpfprof.goruntime.samples.shared_sampler import GoroutineLooks
    from ebpfprof.profilers.report_builder import ReportBuilder


class Rights(NamedTuple):
    """When the kernel requires CAP_SYS_ADMIN: while probes are attached, and during recording."""

    to_attach: bool = False
    to_record: bool = False


@dataclass(frozen=True, slots=True)
class OpenedProcess:
    """A process that is open for recording; `go` is None if it is no Go program.

    `held` closes what profilers open for it. `others_ns(profiler)` is the CPU time (ns) that all
    other profilers took of the process until now. `looks` are those at its goroutines, for all
    profilers that need them; None if it is no Go program.
    """

    process: Target
    go: GoTarget | None
    held: ExitStack
    others_ns: Callable[[Profiler], float]
    looks: GoroutineLooks | None = None


@dataclass(slots=True, kw_only=True)
class RecordedData:
    """What a profiler read from the kernel about one process.

    `stands_for_ns` is the time that an estimate stands for; None: it is the time of the recording.
    """

    stands_for_ns: int | None = None


class HasSnapshots:
    """Half of a profiler whose snapshots have all there is: it adds up nothing for its users."""

    def begin(self, _number: int) -> None:
        """No mark."""

    def read(self, number: int, _mark: None, *, restart: bool) -> RecordedData:
        """Never called, since begin() returns no mark."""
        raise NotImplementedError


class Profiler(Protocol):
    """One loaded BPF program, or several that belong together.

    Each process has a number below the `targets` of open_profiler. One thread at a time may use a
    profiler. The order of calls: load(); open(), start() and stop() for each process, any number of
    times, with end() before stop(); or end() of all, detach(), and close(). report() works after
    close(), too.
    """

    @property
    def tick_s(self) -> float:
        """The time until the next poll() while it records a process, in seconds."""

    @property
    def hit_ns(self) -> float | None:
        """What a probe hit costs a thread, in ns, without our program; None if unknown."""

    def load(self, goroutines: int) -> None:
        """Make the maps and load the program, for now `goroutines` goroutines; 0: unknown.

        Raises KernelUnsupported, PermissionDenied or what the compiler raises.
        """

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Give an open process this number. Raises any of ebpfprof.errors."""

    def start(self, number: int) -> int:
        """Start to record a process, until end(). Returns the start time (CLOCK_MONOTONIC, ns).

        Earlier sums go on. Raises AttachFailed, TargetGone or PermissionDenied.
        """

    def note_end(self, number: int) -> None:
        """Read from a process what must be read before its recording ends."""

    def end(self, number: int, at_ns: int) -> None:
        """End the recording of a process, if it is recorded: later events don't count.

        `at_ns` (CLOCK_MONOTONIC) is a moment from now, the same for all profilers. This returns at
        once: what takes time is left to stop() or detach().
        """

    def stop(self, number: int) -> None:
        """Detach the probes from a process, if it is recorded; its sums stay."""

    def detach(self) -> None:
        """Detach all probes and close all samplers; sums stay readable."""

    def forget(self, number: int) -> None:
        """Delete all data of a process that is not recorded, so that its number is free."""

    def poll(self) -> None:
        """Do the regular work while it records processes; call it every `tick_s`."""

    def has_probes(self, number: int) -> bool:
        """Whether it attaches probes, which are breakpoints, to the process while it records it."""

    def runs(self, number: int) -> tuple[Runs, Runs]:
        """The runs of its programs for this number so far: at probes, at CPU samples."""

    def losses(self) -> Sequence[Loss]:
        """What it lost so far of each process, by number."""

    def failures(self) -> Sequence[Exception]:
        """The errors because of which data is missing."""

    def snapshot(self, number: int, *, settled: bool) -> RecordedData | None:
        """The sums of a process since its first start; None if the profiler keeps no sums.

        `settled` sums hold no extrapolation beyond the last window.
        """

    def begin(self, number: int) -> Any:  # noqa: ANN401 - its own
        """Start to add up samples, for as long as the caller keeps the result, a mark for read().

        None if the profiler keeps sums: then snapshot() has them.
        """

    def read(self, number: int, mark: Any, *, restart: bool) -> RecordedData:  # noqa: ANN401 - the profiler knows its type
        """The samples since begin() returned `mark`; with `restart`, the sums restart at 0."""

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the profiles made of the data, with names, to the builder."""

    def close(self) -> None:
        """Free everything that is left in the kernel."""
