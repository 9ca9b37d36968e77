"""One recording from start to end: targets opened, probes in, waiting, probes out, profiles."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from ebpfprof.errors import AttachFailed, TargetGone
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Overhead, Runs, own_cost
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profile.model import Kind
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.recording.target import Recorded, compile_collectors, open_recorded, programs_for
from ebpfprof.system.signals import check, interruptible

if TYPE_CHECKING:  # what reads executables is imported late, see Session.__init__
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profilers.cpu.collector import CpuCollector
    from ebpfprof.profilers.cpu.sample_table import SampleSums
    from ebpfprof.recording.report import Report

_TICK_S = 0.1


class Session:
    """Records one set of processes once. A context manager: leaving it removes every probe."""

    def __init__(self, pids: Sequence[int], options: Options) -> None:
        """Open and inspect the targets, compile and load the program; nothing is probed yet.

        Raises any of ebpfprof.errors.
        """
        self._options = options
        self._held = contextlib.ExitStack()
        self._recordings: list[Recorded] = []
        self._waits: WaitsCollector | None = None
        self._cpu: CpuCollector | None = None
        self._samples: dict[int, SampleSums] = {}  # by index of the recording
        self._at_the_end: tuple[list[Overhead], Sequence[Loss]] | None = None
        try:
            # BCC takes a second to compile, in a process of its own. Meanwhile the libraries that
            # read executables are imported and the executables read, which takes as long.
            files = self._held.enter_context(WorkerFileOpener())
            self._waits, self._cpu = compile_collectors(len(pids), options, self._held)
            if options.open_waits:
                import ebpfprof.profilers.waits.open_waits  # noqa: F401 - at the end there is no time for it

            programs = programs_for(options)
            for pid in pids:
                recorded = open_recorded(pid, options, self._held, files, programs)
                self._recordings.append(recorded)
            if self._waits:
                self._waits.load(sum(recording.goroutines() for recording in self._recordings))
            if self._cpu:
                self._cpu.load()
        except BaseException:
            self._held.close()
            raise

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets, in the order in which they were named."""
        return tuple(recording.target for recording in self._recordings)

    def files(self, target: Target) -> tuple[Kind, ...]:
        """The profiles that finish() has of a target, in order; CPU alone of one that is no Go."""
        recording = next(each for each in self._recordings if each.target is target)
        with_open = self._options.open_waits and recording.go is not None
        return (*recording.kinds, "open") if with_open else recording.kinds

    def start(self) -> None:
        """Put the probes in. Raises AttachFailed, or TargetGone if a target has gone.

        A signal that aborts is looked at before each target.
        """
        for index, recording in enumerate(self._recordings):
            check()
            target = recording.target
            try:
                if self._waits and recording.go:
                    self._begin_waits(index, recording, recording.go)
                if self._cpu and recording.objects:
                    self._cpu.attach(index, target, recording.objects, recording.go)
                    self._samples[index] = self._cpu.begin_sums(index)
            except AttachFailed:
                target.require_running()  # that it went says more than that the probe failed
                raise
            target.require_running()
        if self._cpu:
            self._cpu.start()
        for recording in self._recordings:
            recording.begin_cpu()
        self._started_ns, self._started_unix_ns = kernel_now_ns(), time.time_ns()

    def wait(self, duration_s: float, should_stop: Callable[[float], bool]) -> None:
        """Let it record until the duration has passed, all targets ended, or told to stop.

        `should_stop` is asked about ten times a second, with the seconds gone so far.
        """
        looks_s = 0.0
        while any(recording.ending is None for recording in self._recordings):
            gone_s = (kernel_now_ns() - self._started_ns) / 1e9
            if gone_s >= duration_s:
                break
            if gone_s >= looks_s:
                looks_s = gone_s + _TICK_S
                self._notice_endings()
                if self._waits:
                    self._waits.poll()
                if should_stop(gone_s):
                    break
            # Not select(): it knows no file descriptors above 1023.
            endings = select.poll()
            for recording in self._recordings:
                if recording.ending is None:
                    endings.register(recording.target.pidfd, select.POLLIN)
            tick_s = min(self._cpu.tick_s, _TICK_S) if self._cpu else _TICK_S
            if endings.poll(1000 * min(tick_s, duration_s - gone_s)):
                self._notice_endings()
            for recording in self._recordings:
                recording.look_at_cpu()
            if self._cpu:
                self._cpu.poll()

    def finish(self) -> list[Report]:
        """Take the probes out and return what was recorded of the targets, in order."""
        from ebpfprof.recording.report import Recording, report

        self._notice_endings()
        come = [each.notice_tracer(is_over=True) for each in self._recordings]
        if self._options.open_waits:
            self._read_parked()
        # Windows first: one that is just prepared must not lose its begin to the end of all.
        self._stop_windows()
        for collector in (self._waits, self._cpu):
            if collector:
                collector.stop()
        stopped_ns = kernel_now_ns()
        for recorded in self._recordings:
            recorded.look_at_cpu(is_over=True)
        for collector in (self._cpu, self._waits):
            if collector:
                collector.detach()
        waits = self._waits
        totals, holds = (waits.snapshot(), waits.holds()) if waits else ({}, {})
        watches = {i: each.watch for i, each in enumerate(self._recordings) if each.watch}
        totals.update({index: watch.totals() for index, watch in watches.items()})
        holds.update({index: watch.holds() for index, watch in watches.items()})
        begun = waits.begun() if waits and self._options.open_waits else {}
        for index, watch in watches.items():
            parked = self._recordings[index].parked
            begun.update({index: watch.begun(parked.goroutines)} if parked else {})
        cpu = self._cpu
        stacks = {i: cpu.read_sums(sums) for i, sums in self._samples.items()} if cpu else {}
        overheads, _ = self._at_the_end = self.overheads(), self.losses()
        # What the kernel holds for us counts where memory is short, and names take some.
        for collector in (self._cpu, self._waits):
            if collector:
                collector.close()
        reports = []
        for index, each in enumerate(self._recordings):
            recording = Recording(
                target=each.target,
                go=each.go,
                objects=each.objects,
                kinds=each.kinds,
                started_ns=self._started_ns,
                started_unix_ns=self._started_unix_ns,
                ended_ns=each.ended_ns or stopped_ns,
                ending=each.ending,
                traced=each.traced,
                overhead=overheads[index],
                own_cost=own_cost(),
                watched=each.watch.watched() if each.watch else None,
                totals=totals.get(index, []),
                holds=holds.get(index, {}),
                begun=begun.get(index, {}),
                parked=each.parked,
                unread=each.failure,
                stacks=stacks.get(index, {}),
                sampler=self._cpu.sampler(index) if self._cpu else "",
                losses=self.losses(),
            )
            reports.append(interruptible(partial(report, recording, self._options)))
            each.failure = each.failure or reports[-1].failure
            if come[index]:
                reports[-1].hints.append(each.traced)
        return reports

    def endings(self) -> list[TargetEnd]:
        """Why targets went before the time was over, for those that did."""
        return [r.ending for r in self._recordings if r.ending]

    def assumptions(self) -> list[str]:
        """What is assumed of targets whose Go version is not known: what they show may be wrong."""
        found = (recording.go.assumption for recording in self._recordings if recording.go)
        return [assumption for assumption in found if assumption]

    def refusals(self) -> list[str]:
        """What was asked for and can't be had of some targets, and why."""
        found = (recording.go.no_runtime_locks for recording in self._recordings if recording.go)
        no_go = [
            f"process {each.target.pid} ({each.target.name}) is no Go program: only its CPU "
            "profile is recorded"
            for each in self._recordings
            if each.kinds != self._options.kinds
        ]
        return [*no_go, *(refusal for refusal in found if refusal)]

    def tracers(self) -> list[str]:
        """Warnings, of debuggers that trace targets."""
        return [recording.traced for recording in self._recordings if recording.traced]

    def failures(self) -> list[Exception]:
        """Why names, callers, open waits or what came last are missing in profiles."""
        failures = [each.failure for each in (self._waits, self._cpu) if each]
        failures += [recording.failure for recording in self._recordings]
        failures += [each.watch.failure for each in self._recordings if each.watch]
        return [failure for failure in failures if failure]

    def overheads(self) -> list[Overhead]:
        """What recording has cost each target so far, estimated."""
        if self._at_the_end:
            return self._at_the_end[0]
        hit_ns = self._waits.hit_ns if self._waits else None
        return [
            Overhead(
                self._waits.runs(index) if self._waits else Runs(),
                self._cpu.runs(index) if self._cpu else Runs(),
                hit_ns,
                each.cpu_ns,
            )
            for index, each in enumerate(self._recordings)
        ]

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all targets together."""
        if self._at_the_end:
            return self._at_the_end[1]
        parked = [recording.parked for recording in self._recordings if recording.parked]
        collected = [c.losses() for c in (self._waits, self._cpu) if c]
        return [
            loss for losses in (*collected, *(each.losses for each in parked)) for loss in losses
        ]

    def close(self) -> None:
        """Detach all probes and close the targets."""
        self._stop_windows()
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin_waits(self, index: int, recorded: Recorded, go: GoTarget) -> None:
        assert self._waits is not None
        if not self._options.is_bounded:
            self._waits.attach(index, go)
            return
        from ebpfprof.profilers.waits.windows import Watch

        cpu, share = self._cpu, self._options.max_overhead / 100
        others_ns = (lambda: cpu.runs(index).ns) if cpu else (lambda: 0.0)
        recorded.watch = Watch(self._waits, index, go, share, others_ns)
        recorded.watch.start()

    def _stop_windows(self) -> None:
        """End the windows of all targets at the same time."""
        watches = [each.watch for each in self._recordings if each.watch]
        for watch in watches:
            watch.end()
        for watch in watches:
            watch.stop()

    def _notice_endings(self) -> None:
        for recording in self._recordings:
            if recording.ending is None:
                recording.ending = recording.target.ending()
                recording.ended_ns = kernel_now_ns() if recording.ending else 0

    def _read_parked(self) -> None:
        """Read which goroutines wait now; why that fails, if it does, is told at the end."""
        from ebpfprof.goruntime.process import for_user
        from ebpfprof.profilers.waits.open_waits import read_parked

        for each in self._recordings:
            if each.ending is None and each.go:
                try:
                    each.parked = read_parked(
                        each.go, kernel_now_ns(), has_labels=self._options.labels != ()
                    )
                except TargetGone:
                    self._notice_endings()  # and nothing waits any more
                except Exception as error:  # what was recorded is worth more
                    each.failure = for_user(each.target, error)
