"""One recording from start to end: a LiveSession whose processes start together and end once."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Overhead, own_cost
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.loaded_profilers import end_together
from ebpfprof.recording.reports import ProcessSums, reported
from ebpfprof.recording.slices import SliceReader
from ebpfprof.system.closing import Closing
from ebpfprof.system.signals import check, interruptible

if TYPE_CHECKING:  # the readers of executables are imported late, while BCC compiles
    from ebpfprof.profilers.report_builder import Report
    from ebpfprof.recording.target import RecordedTarget

_TICK_S = 0.1


class Session(Closing):
    """Records some processes once. A context manager: leaving it detaches every probe."""

    def __init__(
        self,
        pids: Sequence[int],
        options: Options,
        *,
        until_end: bool = False,
        has_slices: bool = False,
    ) -> None:
        """Open and inspect the processes, compile and load the programs; attach no probe yet.

        `until_end`: the processes are to be recorded until they end, which is then no early end.
        With `has_slices`, profiles of waits have slices, of the time of wait().
        Raises any of ebpfprof.errors.
        """
        self._options = options
        self._until_end = until_end
        self._has_slices = has_slices
        self._slices: list[SliceReader] = []
        self._at_the_end: tuple[list[Overhead], list[Loss]] | None = None
        self._names_failed: list[Exception] = []
        # BCC compiles in another process, for a second. Meanwhile we import the readers of
        # executables and read the executables, which takes as long.
        self._live = LiveSession(options, capacity=len(pids), is_no_thread=True)
        try:
            self._targets = [self._live.add(pid) for pid in pids]
            self._live.load()
        except BaseException:  # Ctrl-C too: the caller has no session to close
            self._live.close()
            raise

    @property
    def targets(self) -> tuple[Target, ...]:
        """The processes, in the order of the pids."""
        return tuple(target.target for target in self._recorded())

    def files(self, target: Target) -> tuple[str, ...]:
        """The names of the profiles that finish() returns for a process, in order."""
        recorded = next(recording for recording in self._recorded() if recording.target is target)
        added = [kind for kind in self._options.recorded_kinds if kind.enabled_by]
        fitting = (kind.name for kind in added if recorded.go or not kind.loader.needs_go)
        return (*recorded.kinds, *fitting)

    def start(self) -> None:
        """Start to record. Raises AttachFailed, or TargetGone if a process has ended.

        Between processes it checks for a signal that aborts.
        """
        self._starts: list[ProcessSums] = []
        for target in self._targets:
            check()
            self._starts.append(self._live.start(target))
        self._started_ns = kernel_now_ns()

    def wait(self, duration_s: float, should_stop: Callable[[float], bool]) -> None:
        """Record until the duration is over, all processes have ended, or should_stop() is true.

        It calls `should_stop` about ten times a second, with the seconds since the start.
        """
        next_check_s = 0.0
        if self._has_slices:
            self._slices = [
                SliceReader(self._live, target, since, self._options, duration_s)
                for target, since in zip(self._targets, self._starts, strict=True)
            ]
        while running := [target for target in self._recorded() if target.ending is None]:
            gone_s = (kernel_now_ns() - self._started_ns) / 1e9
            if gone_s >= duration_s:
                break
            if gone_s >= next_check_s:
                next_check_s = gone_s + _TICK_S
                self._live.notice_endings()
                if should_stop(gone_s):
                    break
            # Not select(): it fails for file descriptors above 1023.
            endings = select.poll()
            for recorded in running:
                endings.register(recorded.target.pidfd, select.POLLIN)
            tick_s = min(self._live.profilers.tick_s, _TICK_S)
            if endings.poll(1000 * min(tick_s, duration_s - gone_s)):
                self._live.notice_endings()
            for recorded in running:
                recorded.read_cpu_time()
            self._live.poll()
            for slices in self._slices:
                slices.poll()

    def finish(self) -> list[Report]:
        """End the recording and return the report of each process, in order."""
        from ebpfprof.profilers.report_builder import RecordingFacts

        live, profilers = self._live, self._live.profilers
        live.notice_endings()
        recorded = self._recorded()
        new_tracers = [recording.notice_tracer(is_over=True) for recording in recorded]
        new_unprobed = [recording.notice_unprobed() for recording in recorded]
        running = [target.recordings for target in self._targets if not target.ending]
        for target in self._targets:
            if target.handlers:
                target.handlers.stop()
        for recordings in running:
            recordings.note_end()
        ended_ns = end_together(running)
        live.notice_endings()
        for recorded_target in recorded:
            recorded_target.read_cpu_time(is_over=True)
        overheads = self.overheads()  # until the same moment as the CPU time
        profilers.detach()
        parts = [target.recordings.sums() for target in self._targets]
        losses = [live.losses(target) for target in self._targets]
        self._at_the_end = overheads, list(live.losses())
        # Free the maps first: finding names needs memory, which may be short.
        profilers.close()
        reports = []
        for index, recorded_target in enumerate(recorded):
            target = self._targets[index]
            facts = RecordingFacts(
                target=recorded_target.target,
                go=recorded_target.go,
                kinds=recorded_target.kinds,
                started_ns=target.started_ns,
                started_unix_ns=target.started_unix_ns,
                ended_ns=recorded_target.ended_ns or ended_ns,
                ending=recorded_target.ending,
                until_end=self._until_end,
                traced=recorded_target.traced,
                unprobed=recorded_target.unprobed,
                overhead=overheads[index],
                own_cost=own_cost(),
                losses=losses[index],
                no_go=recorded_target.no_go,
            )
            sums = ProcessSums(target, facts, parts[index])
            report = interruptible(partial(self._report, sums, self._starts[index]))
            if report.failure:
                self._names_failed.append(report.failure)
            if self._slices:
                with_slices = partial(self._slices[index].finish, sums, report.profiles)
                report.profiles = interruptible(with_slices)
            if new_tracers[index]:
                report.hints.append(recorded_target.traced)
            if new_unprobed[index]:
                report.hints.append(recorded_target.unprobed)
            reports.append(report)
        return reports

    def endings(self) -> list[TargetEnd]:
        """How processes ended, for those that ended before the recording."""
        return [target.ending for target in self._recorded() if target.ending]

    def early_endings(self) -> list[TargetEnd]:
        """The endings of processes that were to be recorded for longer."""
        return [ending for ending in self.endings() if ending.is_exec or not self._until_end]

    def assumptions(self) -> list[str]:
        """What we assume about unknown versions of Go, so that their profiles may be wrong."""
        of_targets = (target.go.assumption for target in self._recorded() if target.go)
        return [assumption for assumption in of_targets if assumption]

    def refusals(self) -> list[str]:
        """What the options ask for and some processes can't have, and why, in words."""
        of_targets = (target.go.no_runtime_locks for target in self._recorded() if target.go)
        no_go = (recording.no_go for recording in self._recorded())
        return [*filter(None, no_go), *(refusal for refusal in of_targets if refusal)]

    def tracers(self) -> list[str]:
        """Warnings about debuggers that trace processes."""
        return [target.traced for target in self._recorded() if target.traced]

    def unprobed(self) -> list[str]:
        """Warnings about code that can't be probed, such as that of Go plugins."""
        return [target.unprobed for target in self._recorded() if target.unprobed]

    def failures(self) -> list[Exception]:
        """Errors because of which names, callers, open waits, late events or slices are missing."""
        of_processes = (target.recordings.failures() for target in self._targets)
        of_slices = (slices.failures for slices in self._slices)
        failures = chain(self._live.profilers.failures(), *of_processes, *of_slices)
        return [*failures, *self._names_failed]

    def overheads(self) -> list[Overhead]:
        """What recording has cost each process so far, estimated."""
        if self._at_the_end:
            return self._at_the_end[0]
        return [self._live.overhead(target) for target in self._targets]

    def losses(self) -> list[Loss]:
        """What the profilers lost so far, of all processes together."""
        return self._at_the_end[1] if self._at_the_end else list(self._live.losses())

    def close(self) -> None:
        """Detach all probes and close the processes."""
        self._live.close()

    def _report(self, sums: ProcessSums, since: ProcessSums) -> Report:
        report = reported(sums, since, self._options)
        report.profiles = sums.target.labelled(report.profiles)
        return report

    def _recorded(self) -> list[RecordedTarget]:
        return [target.recorded for target in self._targets]
