"""What a profiler can do: it records some kinds of profile, of any number of processes.

Each module that ProfileKind.profiler names has two functions: open_profiler(targets, options)
returns one, and rights(options) the Rights that it needs.
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
    from ebpfprof.profilers.report_builder import ReportBuilder


class Rights(NamedTuple):
    """For what the kernel wants CAP_SYS_ADMIN: to put probes in, and as long as it is recorded."""

    to_attach: bool = False
    to_record: bool = False


@dataclass(frozen=True, slots=True)
class OpenedProcess:
    """A process that was opened to be recorded; `go` is None if it is no Go program.

    `held` closes what profilers open for it. `others_ns` tells what all other profilers than the
    one that is given took of the process's CPU time until now.
    """

    process: Target
    go: GoTarget | None
    held: ExitStack
    others_ns: Callable[[Profiler], float]


@dataclass(slots=True, kw_only=True)
class RecordedData:
    """What a profiler has recorded of a process, as it is read out of the kernel.

    `stands_for_ns` is the time that it is of, where that is not the time that was recorded.
    """

    stands_for_ns: int | None = None


class Profiler(Protocol):
    """One loaded BPF program, or several that belong together.

    Processes have numbers below the `targets` that it was opened for. It is used by one thread at a
    time. In this order: load(); open(), start() and stop() of each process, any number of times;
    end(), detach(), and at last close(). What was read is still named after close().
    """

    @property
    def tick_s(self) -> float:
        """How soon it is to be polled again while a process is recorded, in seconds."""

    @property
    def hit_ns(self) -> float | None:
        """What it costs a thread to pass a probe, in ns, without our program; None: not known."""

    def load(self, goroutines: int) -> None:
        """Make the maps and load the program; `goroutines` is how many there are now, 0: unknown.

        Raises KernelUnsupported, PermissionDenied or what the compiler does.
        """

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Make a process number `number`. Raises any of ebpfprof.errors."""

    def start(self, number: int) -> int:
        """Record a process from now on, until stop(): when that was (CLOCK_MONOTONIC, ns).

        Sums go on. Raises AttachFailed, TargetGone or PermissionDenied.
        """

    def stop(self, number: int) -> None:
        """Record a process no more; its sums stay. Nothing happens if it is not recorded."""

    def note_end(self, number: int) -> None:
        """Read what must be read of a process before its recording ends."""

    def end(self) -> None:
        """End the recording of all processes at once: what comes now leaves no trace."""

    def detach(self) -> None:
        """Remove all probes and samplers; sums stay readable."""

    def forget(self, number: int) -> None:
        """Forget all of a process that is not recorded; another may have its number then."""

    def poll(self) -> None:
        """Do what must be done now and then while processes are recorded."""

    def runs(self, number: int) -> tuple[Runs, Runs]:
        """How often programs ran for the processes of a number: by probe hits, by CPU samples."""

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all processes together."""

    def failures(self) -> Sequence[Exception]:
        """Why something is missing of what was recorded."""

    def snapshot(self, number: int, *, settled: bool) -> RecordedData | None:
        """The sums of a process since its first start; None if this one keeps no sums.

        If they are to be `settled`, they hold nothing that is only likely to come.
        """

    def begin(self, number: int) -> Any:  # noqa: ANN401 - its own
        """Add up what comes from now on, as long as the result is kept; None: snapshots do."""

    def read(self, number: int, mark: Any, *, restart: bool) -> RecordedData:  # noqa: ANN401
        """What has come since begin() returned `mark`; it begins anew now if `restart`."""

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the profiles of what was found, with names."""

    def close(self) -> None:
        """Remove what is left in the kernel."""
