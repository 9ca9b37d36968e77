"""Records processes for as long as callers want, by BPF programs that are loaded once."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ebpfprof.errors import AttachFailed, TargetGone
from ebpfprof.goruntime.samples.sampling_thread import LookThread
from ebpfprof.kernel.losses import Loss, losses_in_all, losses_of, losses_since
from ebpfprof.overhead.cost import Overhead
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.profiler import OpenedProcess
from ebpfprof.recording.profiler_set import ProfilerSet
from ebpfprof.recording.reports import IntervalStart, live_report
from ebpfprof.recording.target import LiveTarget, looks_at, open_target, programs_for
from ebpfprof.system.closing import Closing
from ebpfprof.system.heap import give_back_large_blocks

if TYPE_CHECKING:  # the readers of executables are imported late, while BCC compiles
    from ebpfprof.profilers.report_builder import Report

_TICK_S = 0.1  # in a longer time, the first samples of many processors could fill the table
_ENDINGS_S = 0.5
_ENDINGS_EACH_S = 0.01  # of many processes: each takes some 50 us


class LiveSession(Closing):
    """BPF programs that are loaded once, and processes that come and go. Any thread may use it.

    A context manager: leaving it detaches every probe. Its own thread polls the profilers and
    notices the ends of processes. With `is_no_thread` the caller does that: it calls poll() and
    notice_endings().
    """

    def __init__(self, options: Options, *, capacity: int = 64, is_no_thread: bool = False) -> None:
        """Compile for up to `capacity` processes, and load the programs.

        With `is_no_thread`, the caller calls load(). Raises any of ebpfprof.errors.
        """
        give_back_large_blocks()
        self._options = options
        self._capacity = capacity
        self._programs = programs_for(options)
        self._look_thread = LookThread()
        self._lock = threading.RLock()
        self._targets: dict[int, LiveTarget] = {}  # by number
        # Reuse the number that has been free longest: a late event may still carry it.
        self._free_numbers = deque(range(capacity))
        self._is_loaded = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        with ExitStack() as held:
            self.files = held.enter_context(WorkerFileOpener())
            """What opens the files of processes, until close()."""
            self.profilers = ProfilerSet(capacity, options)
            held.callback(self.profilers.close)
            if not is_no_thread:
                self.load()
            held.pop_all()  # close() does it
        if not is_no_thread:
            self._thread = threading.Thread(target=self._poll, name="ebpfprof-live", daemon=True)
            self._thread.start()

    def load(self) -> None:
        """Make the maps, large enough for the goroutines of the processes, and load the programs.

        Raises KernelUnsupported, PermissionDenied and what the compiler raises.
        """
        self.profilers.load(sum(each.recorded.goroutines() for each in self._targets.values()))
        self._is_loaded = True

    def add(self, pid: int) -> LiveTarget:
        """Open and inspect a process, without attaching probes.

        Raises any of ebpfprof.errors: NoSuchProcess, NotGoProgram, UnsupportedGo, PermissionDenied
        and so on; AttachFailed if there are `capacity` processes already.
        """
        with ExitStack() as held:
            recorded = open_target(pid, self._options, held, self.files, self._programs)
            with self._lock:
                if not self._free_numbers:
                    raise AttachFailed(
                        f"Process {pid} can't be added: ebpfprof records {self._capacity} "
                        "processes already. Record it with another ebpfprof."
                    )
                number = self._free_numbers[0]
                profilers = weakref.proxy(self.profilers)  # they keep the function: no circle
                opened = OpenedProcess(
                    recorded.target,
                    recorded.go,
                    held,
                    lambda own: profilers.ns_of_others(number, own),
                    looks_at(recorded, self._options, self._look_thread, held),
                )
                self.profilers.open(number, opened, recorded.kinds)
                recorded.has_probes = self.profilers.has_probes(number)
                recorded.notice_tracer()
                recorded.notice_unprobed()
                target = LiveTarget(number, recorded, held.pop_all())
                if self._is_loaded:
                    target.runs_before = self.profilers.runs(number)
                    target.losses_before = losses_of(self.profilers.losses(), number)
                self._free_numbers.popleft()
                self._targets[number] = target
        return target

    def start(self, target: LiveTarget) -> None:
        """Start to record a process, unless it is recorded. Each start needs a stop().

        Raises AttachFailed, or TargetGone if the process has ended.
        """
        with self._lock:
            self._require_running(target)
            if target.users == 0:
                try:
                    self._attach(target)
                except BaseException:
                    self._detach(target)
                    self._require_running(target)  # that it ended says more
                    raise
            target.users += 1

    def stop(self, target: LiveTarget) -> None:
        """Undo one start(). After the last one, stop recording the process; its sums stay."""
        with self._lock:
            if target.users > 1:
                target.users -= 1
            elif target.users == 1:
                target.pause(self._detach(target))

    def remove(self, target: LiveTarget) -> None:
        """Stop recording a process, however many starts it has, and close it with its sums."""
        with self._lock:
            if self._targets.get(target.number) is not target:
                return
            del self._targets[target.number]
            if target.users:
                target.pause(self._detach(target))
            self.profilers.forget(target.number)
            self._free_numbers.append(target.number)
            target.held.close()

    def snapshot(
        self,
        target: LiveTarget,
        kinds: Collection[str] | None = None,
        *,
        settled: bool = False,
    ) -> Report:
        """The sums of a process since its first start, which never decrease.

        It has a profile for each of `kinds` (by default all) that keeps sums. Later snapshots share
        the Location objects. The time of a profile is the first start, its duration the time that
        the process was recorded since. In a pause between windows the sums include an
        extrapolation to the next window. With `settled` they do not, and the duration is the time
        that the windows so far stand for. Raises TargetGone if the process was removed.
        """
        with self._lock:
            self._require_held(target)
            wanted = target.kinds if kinds is None else kinds
            names = tuple(name for name in target.kinds if name in wanted)
            found = self.profilers.snapshot(target.number, settled=settled) if names else []
            # Take the time last: the sums can't hold waits that are later than it.
            stands_for = [each.found.stands_for_ns for each in found]
            ended_ns = next((ns for ns in stands_for if ns is not None), target.recorded_ns)
            recording = target.recording(names, self.overhead(target), self.losses(target))
            recording = replace(recording, ended_ns=ended_ns)
            return live_report(target, recording, found, self._options)

    def begin(self, target: LiveTarget) -> IntervalStart | None:
        """Start to add up samples of a process, for as long as the caller keeps the result.

        For the kinds that keep no sums; None if the process has no such kind. Raises TargetGone if
        the process was removed.
        """
        with self._lock:
            self._require_held(target)
            unix_ns, recorded_ns = time.time_ns(), target.recorded_ns  # before there is a sample
            overhead, losses = self.overhead(target), self.losses(target)
            marks = self.profilers.begin(target.number)
            return IntervalStart(marks, unix_ns, recorded_ns, overhead, losses) if marks else None

    def read(self, target: LiveTarget, since: IntervalStart, *, restart: bool = False) -> Report:
        """The profiles of the time since `since`; with `restart`, `since` becomes now.

        Their duration is the time that the process was recorded. Raises TargetGone if the process
        was removed.
        """
        with self._lock:
            self._require_held(target)
            found = self.profilers.read(target.number, since.marks, restart=restart)
            overhead, losses = self.overhead(target), self.losses(target)
            recorded_ns = target.recorded_ns
            recording = replace(
                target.recording(
                    target.kinds,
                    overhead - since.overhead,
                    losses_since(losses, since.losses),
                ),
                started_ns=since.recorded_ns,
                started_unix_ns=since.unix_ns,
                ended_ns=recorded_ns,
            )
            report = live_report(target, recording, found, self._options)
            if restart:
                since.unix_ns, since.recorded_ns = time.time_ns(), recorded_ns
                since.overhead, since.losses = overhead, losses
            return report

    def overhead(self, target: LiveTarget) -> Overhead:
        """What recording has cost a process since its first start, estimated.

        Raises TargetGone if the process was removed.
        """
        with self._lock:
            self._require_held(target)
            recorded = target.recorded
            recorded.look_at_cpu()
            hits, samples = self.profilers.runs(target.number)
            hits_before, samples_before = target.runs_before
            hit_ns = self.profilers.hit_ns
            used_ns = recorded.cpu_ns, recorded.kernel_ns
            return Overhead(hits - hits_before, samples - samples_before, hit_ns, *used_ns)

    def losses(self, target: LiveTarget | None = None) -> tuple[Loss, ...]:
        """What the profilers lost of a process since it was added; None: of all together so far."""
        with self._lock:
            found = self.profilers.losses()
            if target is None:
                return losses_in_all(found)
            return losses_since(losses_of(found, target.number), target.losses_before)

    def poll(self) -> None:
        """Poll the profilers if a process is recorded."""
        with self._lock:
            if any(each.is_recording for each in self._targets.values()):
                self.profilers.poll()

    def notice_endings(self) -> None:
        """Check which processes have ended, and stop recording them."""
        with self._lock:
            for target in list(self._targets.values()):
                self._notice_ending(target)

    def close(self) -> None:
        """Detach all probes and close all processes."""
        self._closing.set()
        if self._thread:
            self._thread.join()
        with self._lock:
            self.profilers.close()
            for target in self._targets.values():
                target.held.close()
            self._targets.clear()
            self.files.close()

    def _attach(self, target: LiveTarget) -> None:
        began_ns = self.profilers.start(target.number)
        target.recorded.begin_cpu()
        target.started_ns = began_ns
        self._require_running(target)
        target.started_unix_ns = target.started_unix_ns or time.time_ns()

    def _detach(self, target: LiveTarget) -> int:
        """End the recording of a process; returns when that was (CLOCK_MONOTONIC, ns)."""
        ended_ns = self.profilers.end([target.number])
        target.recorded.look_at_cpu(is_over=True)
        self.profilers.stop(target.number)
        return ended_ns

    def _require_held(self, target: LiveTarget) -> None:
        if self._targets.get(target.number) is not target:
            raise TargetGone(f"Process {target.pid} was removed from the recording.")

    def _require_running(self, target: LiveTarget) -> None:
        self._notice_ending(target)
        if not target.started_unix_ns:  # nothing was recorded before, either
            target.recorded.target.require_running()
        if target.ending:
            raise TargetGone(f"Nothing is recorded any more: {target.ending.text}.")
        self._require_held(target)

    def _notice_ending(self, target: LiveTarget) -> None:
        recorded = target.recorded
        if recorded.ending is None and self._targets.get(target.number) is target:
            ending = recorded.target.ending()
            if ending and target.users:
                recorded.ending = ending
                recorded.ended_ns = self._detach(target)
                target.pause(recorded.ended_ns)
            recorded.ending = ending

    def _poll(self) -> None:
        looked_s = time.monotonic()
        while not self._closing.wait(self.profilers.tick_s):
            self.poll()
            apart_s = max(_ENDINGS_S, _ENDINGS_EACH_S * len(self._targets))
            if time.monotonic() >= looked_s + apart_s:
                looked_s = time.monotonic()
                self.notice_endings()
