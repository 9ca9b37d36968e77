"""The waits of one process, of which one in eight is recorded: those that Go itself tracks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import percent
from ebpfprof.errors import BadConfig
from ebpfprof.overhead.cost import Cost
from ebpfprof.profile.losses import Loss, losses_of, losses_since
from ebpfprof.profilers.registry import options_of_kinds
from ebpfprof.profilers.waits.kinds import BLOCK
from ebpfprof.profilers.waits.tracked_program import TrackedProgram, stack_totals
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD

if TYPE_CHECKING:
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.recording import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder, WholeSums
    from ebpfprof.profilers.waits.rows import StackTotal
    from ebpfprof.profilers.waits.wait_profiles import ReadWaits

_TICK_S: Final = 0.5
_SENTENCE: Final = "Sampled (one wait in eight). Use --max-overhead 0 to record every wait."
_ERRORS: Final = (
    "+-{} on all counts, +-{} on all delays (one standard error). Counts of single stacks are less "
    "accurate where a goroutine waits in regular turns; waits of a few microseconds appear longer"
)
_NO_LABELS: Final = "labels of goroutines were not recorded"
_UNSUPPORTED: Final = {
    "block_rate_ns": "--block-rate",
    "by_lock": "--by-lock",
    "lock_labels": "--lock-labels",
    "runtime_locks": "--runtime-locks",
    "earlier_waits": "--earlier-waits",
}


class TrackedRecording:
    """Records the block profile of one process. See profilers.recording.Recording."""

    has_probes = True

    def __init__(self, profiler: TrackedProfiler, opened: OpenedProcess, slot: int) -> None:
        """The process is a Go program; `slot` is its number in the maps of the program."""
        from ebpfprof.profilers.waits.wait_stacks import StackTranslator

        assert opened.go
        self._program, self._go, self._slot = profiler.program, opened.go, slot
        self._translator = StackTranslator(opened.go)
        self._is_started = False
        self._runs_before = self._program.runs(slot)
        self._losses_before = losses_of(self._program.losses(), slot)

    def start(self) -> int:
        """Attach the probes. Raises as Recording.start."""
        self._is_started = True
        return self._program.attach(self._slot, self._go)

    def note_end(self) -> None:
        """Nothing is read before the end."""

    def end(self, _at_ns: int) -> None:
        """Record no more events."""
        self._program.end(self._slot)

    def stop(self) -> None:
        """Detach the probes; the sums stay."""
        self._program.detach_target(self._slot)

    def sums(self) -> WholeSums[ReadWaits] | None:
        """The sums since the first start; None before it."""
        from ebpfprof.profilers.report_builder import WholeSums
        from ebpfprof.profilers.waits.wait_profiles import ReadWaits

        if not self._is_started:
            return None
        hit_ns = self._program.hit_ns or 0.0
        totals = stack_totals(self._program.sums(self._slot), self._go, hit_ns=hit_ns)
        return WholeSums(ReadWaits(kinds=(BLOCK,), totals=totals, remarks=_remarks(totals)))

    def report(
        self,
        sums: WholeSums[ReadWaits],
        since: WholeSums[ReadWaits] | None,
        builder: ReportBuilder,
    ) -> None:
        """Add the block profile."""
        builder.add_since(self._report_whole, sums, since)

    def _report_whole(self, read: ReadWaits, builder: ReportBuilder) -> None:
        from ebpfprof.profilers.waits.wait_profiles import report

        report(read, self._go, self._translator, builder)
        builder.report.sampled = _SENTENCE

    def cost(self) -> Cost:
        """The runs at probes."""
        return Cost(self._program.runs(self._slot) - self._runs_before, hit_ns=self._program.hit_ns)

    def losses(self) -> Sequence[Loss]:
        """What it lost so far."""
        return losses_since(losses_of(self._program.losses(), self._slot), self._losses_before)

    def failures(self) -> Sequence[Exception]:
        """None of its own."""
        return ()

    def close(self) -> None:
        """Delete its data in the maps of the program."""
        self._program.forget(self._slot)


class TrackedProfiler:
    """The loaded program, for any number of processes. See profilers.recording.LoadedProfiler."""

    tick_s = _TICK_S

    def __init__(self, targets: int, options: Options) -> None:
        """Start to compile; load() waits for the result.

        Raises BadConfig for other kinds, and for options that it lacks.
        """
        for name, flag in _UNSUPPORTED.items():
            if options[name] != options_of_kinds()[name][0].default:
                raise BadConfig(f"--one-in-eight and {flag} can't be combined: omit one.")
        others = [
            kind.name
            for kind in options.recorded_kinds
            if kind.loader == BLOCK.loader and kind is not BLOCK
        ]
        if others:
            raise BadConfig(
                f"--one-in-eight records the block profile only, not {', '.join(others)}: use "
                "--profile block."
            )
        self.program = TrackedProgram(targets)

    def load(self, _goroutines: int) -> None:
        """Make the maps and load the program."""
        self.program.load()

    def record(self, opened: OpenedProcess, slot: int) -> TrackedRecording:
        """The recording of a Go process, not started yet."""
        return TrackedRecording(self, opened, slot)

    def poll(self) -> None:
        """Nothing to do."""

    def detach(self) -> None:
        """Detach all probes; sums stay readable."""
        self.program.detach()

    def losses(self) -> Sequence[Loss]:
        """Each recording has its own."""
        return ()

    def failures(self) -> Sequence[Exception]:
        """Why probes were removed early, or could not be removed."""
        return [self.program.failure] if self.program.failure else []

    def close(self) -> None:
        """Detach the probes and free the maps."""
        self.program.close()


def _remarks(totals: Sequence[StackTotal]) -> tuple[str, ...]:
    """The errors of a sample of one in eight, in words."""
    count = sum(total.count for total in totals)
    delay_ns = sum(total.delay_ns for total in totals)
    if not count or not delay_ns:
        return ()
    of_counts = math.sqrt((TRACKING_PERIOD - 1) / count)
    of_delays = math.sqrt(sum(total.delay_variance for total in totals)) / delay_ns
    return _ERRORS.format(percent(of_counts), percent(of_delays)), _NO_LABELS
