"""The protocols of what records: a loaded profiler, and its recording of one process.

Each module that ProfileKind.profiler names has two functions: open_profiler(targets, options)
returns a LoadedProfiler, rights(options) the Rights that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.overhead.cost import Cost
from ebpfprof.overhead.process_budget import ProcessBudget
from ebpfprof.process.process import Target
from ebpfprof.profile.losses import Loss

if TYPE_CHECKING:
    from ebpfprof.goruntime.samples.shared_sampler import SharedSampler
    from ebpfprof.profilers.report_builder import ReportBuilder


class Rights(NamedTuple):
    """When the kernel requires CAP_SYS_ADMIN: while probes are attached, and during recording."""

    to_attach: bool = False
    to_record: bool = False


@dataclass(frozen=True, slots=True)
class OpenedProcess:
    """A process that is open for recording; `go` is None if it is no Go program.

    `held` closes what recordings open for it. Recordings that cost it CPU time lease that from the
    `budget`. `sampler` takes the goroutine samples that they share; None without a Go program.
    """

    process: Target
    go: GoTarget | None
    held: ExitStack
    budget: ProcessBudget
    sampler: SharedSampler | None = None


class Recording(Protocol):
    """What one loaded profiler records of one process; it owns all that it needs for that.

    The order of calls: start() and stop(), any number of times, with end() before stop(); close().
    report() works after stop(), and after the profiler was closed, too.
    """

    @property
    def has_probes(self) -> bool:
        """Whether it attaches probes, which are breakpoints, to the process."""

    def start(self) -> int:
        """Start to record, until end(). Returns the start time (CLOCK_MONOTONIC, ns).

        Earlier sums continue. Raises AttachFailed, TargetGone or PermissionDenied.
        """

    def note_end(self) -> None:
        """Read from the process what must be read before its recording ends."""

    def end(self, at_ns: int) -> None:
        """End the recording, if it is not over: later events don't count.

        `at_ns` (CLOCK_MONOTONIC) is a moment from now, the same for all recordings. This returns at
        once: what takes time is left to stop() or LoadedProfiler.detach().
        """

    def stop(self) -> None:
        """Detach the probes, if it is recorded; its sums stay."""

    def sums(self) -> Any:  # noqa: ANN401 - its own
        """All that it has recorded until now, for report(); None before the first start."""

    def report(
        self,
        sums: Any,  # noqa: ANN401 - its own
        since: Any,  # noqa: ANN401 - its own
        builder: ReportBuilder,
    ) -> None:
        """Add the profiles of the time from `since` to `sums`, with names, to the builder.

        `since` is an earlier result of sums(); None: from the first start.
        """

    def cost(self) -> Cost:
        """What it cost the process so far."""

    def losses(self) -> Sequence[Loss]:
        """What it lost so far."""

    def failures(self) -> Sequence[Exception]:
        """The errors because of which data is missing."""

    def close(self) -> None:
        """Delete its data in the kernel, so that its slot is free. It is not recorded then."""


class LoadedProfiler(Protocol):
    """One loaded BPF program, or several that belong together.

    Each process has a slot in its maps, below the `targets` of open_profiler. One thread at a time
    may use a profiler and its recordings.
    """

    @property
    def tick_s(self) -> float:
        """The time until the next poll() while it records a process, in seconds."""

    def load(self, goroutines: int) -> None:
        """Make the maps and load the program, for now `goroutines` goroutines; 0: unknown.

        Raises KernelUnsupported, PermissionDenied or what the compiler raises.
        """

    def record(self, opened: OpenedProcess, slot: int) -> Recording:
        """The recording of a process, not started yet. Raises any of ebpfprof.errors."""

    def poll(self) -> None:
        """Do the regular work while it records processes; call it every `tick_s`."""

    def detach(self) -> None:
        """Detach all probes and close all samplers, once for all; sums stay readable."""

    def losses(self) -> Sequence[Loss]:
        """What it lost so far of all processes together, whose recordings don't know it."""

    def failures(self) -> Sequence[Exception]:
        """The errors because of which data of all processes is missing."""

    def close(self) -> None:
        """Free everything that is left in the kernel."""
