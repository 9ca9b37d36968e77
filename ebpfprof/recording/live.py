"""Records processes for as long as callers want, by BPF programs that are loaded once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING

from ebpfprof.errors import AttachFailed, TargetGone
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.goruntime.samples.sampling_thread import SamplingThread
from ebpfprof.overhead.cost import Overhead
from ebpfprof.overhead.process_budget import ProcessBudget
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.profile.losses import Loss, losses_in_all, losses_together
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.recording import OpenedProcess
from ebpfprof.recording.loaded_profilers import (
    LoadedProfilers,
    ProcessRecordings,
    end_together,
)
from ebpfprof.recording.reports import ProcessSums, live_report
from ebpfprof.recording.target import LiveTarget, open_target, sampler_of
from ebpfprof.system.closing import Closing
from ebpfprof.system.heap import give_back_large_blocks

if TYPE_CHECKING:  # the readers of executables are imported late, while BCC compiles
    from ebpfprof.profilers.report_builder import Report

_TICK_S = 0.1  # in a longer time, the first samples of many processors could fill the table
_SAMPLES_S = 0.1  # between the regular work of goroutine samples
_SAMPLES_EACH_S = 0.002  # of many processes
_ENDINGS_S = 0.5
_ENDINGS_EACH_S = 0.01  # of many processes: a check takes about 50 µs


class LiveSession(Closing):
    """BPF programs that are loaded once, and processes that come and go. Any thread may use it.

    A context manager: leaving it detaches every probe. Its own thread polls the profilers and
    notices the ends of processes. With `is_no_thread` the caller does that: it calls poll() and
    notice_endings().
    """

    def __init__(
        self,
        options: Options,
        *,
        capacity: int = 64,
        is_no_thread: bool = False,
        has_routes: bool = True,
        processes: OpenProcesses | None = None,
    ) -> None:
        """Compile for up to `capacity` processes, and load the programs.

        With `is_no_thread`, the caller calls load(). Without `has_routes`, handlers have the names
        of functions only (ProcessHandlers). With `processes` of another session, which must be
        closed later, a process that both record is open once. Raises any of ebpfprof.errors.
        """
        give_back_large_blocks()
        self._options = options
        self._capacity = capacity
        self._sampling_thread = SamplingThread()
        # Of its own: the other samples must not become fewer.
        self._route_thread = SamplingThread() if has_routes else None
        self._lock = threading.RLock()
        self._targets: dict[int, LiveTarget] = {}  # by number
        # Reuse the number that has been free longest: a late event may still carry it.
        self._free_numbers = deque(range(capacity))
        self._lost_before: tuple[Loss, ...] = ()  # of processes that were removed
        self._polled_s = 0.0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        with ExitStack() as held:
            self._files = WorkerFileOpener() if processes is None else None
            if self._files:
                held.enter_context(self._files)
            self.processes = processes or OpenProcesses(
                self._files,
                options.opening,
                runtime_locks=bool(options["runtime_locks"]),
            )
            """Those that are recorded are open in it until they are removed; others may use it."""
            self.profilers = LoadedProfilers(capacity, options)
            held.callback(self.profilers.close)
            if not is_no_thread:
                self.load()
            held.pop_all()  # close() does it
        if not is_no_thread:
            self._thread = threading.Thread(target=self._poll, name="ebpfprof-live", daemon=True)
            self._thread.start()

    @property
    def sampling_s(self) -> float:
        """The CPU time that goroutine samples have taken."""
        return self._sampling_thread.used_s

    def load(self) -> None:
        """Make the maps, large enough for the goroutines of the processes, and load the programs.

        Raises KernelUnsupported, PermissionDenied and what the compiler raises.
        """
        self.profilers.load(sum(target.recorded.goroutines() for target in self._targets.values()))

    def add(self, pid: int) -> LiveTarget:
        """Open and inspect a process, without attaching probes.

        Raises any of ebpfprof.errors: NoSuchProcess, NotGoProgram, UnsupportedGo, PermissionDenied
        and so on; AttachFailed if there are `capacity` processes already.
        """
        with ExitStack() as held:
            recorded = open_target(pid, self._options, held, self.processes)
            with self._lock:
                if not self._free_numbers:
                    raise AttachFailed(
                        f"Process {pid} can't be added: ebpfprof records {self._capacity} "
                        "processes already. Record it with another ebpfprof."
                    )
                number = self._free_numbers[0]
                sampler = sampler_of(recorded, self._options, self._sampling_thread, held)
                recordings = ProcessRecordings(sampler)
                budget = ProcessBudget(self._options.max_overhead)
                held.callback(budget.close)
                opened = OpenedProcess(recorded.target, recorded.go, held, budget, sampler)
                self.profilers.record(recordings, opened, number, recorded.kinds)
                recorded.has_probes = recordings.has_probes
                recorded.notice_tracer()
                recorded.notice_unprobed()
                handlers = None
                if self._options.by_handler:
                    from ebpfprof.recording.process_handlers import ProcessHandlers

                    handlers = ProcessHandlers(recorded.go, self._route_thread)
                    held.callback(handlers.close)
                target = LiveTarget(number, recorded, recordings, held.pop_all(), handlers)
                self._free_numbers.popleft()
                self._targets[number] = target
        return target

    def start(self, target: LiveTarget) -> ProcessSums:
        """Start to record a process, unless it is recorded. Each start needs a stop().

        Returns its sums at the start: CPU samples add up from there on while the caller keeps them.
        Raises AttachFailed, or TargetGone if the process has ended.
        """
        with self._lock:
            self._require_running(target)
            sums = self.sums(target)
            if target.users == 0:
                try:
                    self._attach(target)
                except BaseException:  # Ctrl-C too: no probe may stay
                    self._detach(target)
                    self._require_running(target)  # that it ended says more
                    raise
            target.users += 1
            return sums

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
            self._lost_before = losses_in_all((*self._lost_before, *target.recordings.losses()))
            target.recordings.close()
            self._free_numbers.append(target.number)
            target.held.close()

    def sums(self, target: LiveTarget, kinds: Collection[str] | None = None) -> ProcessSums:
        """What was recorded of a process since its first start, for report().

        Of these `kinds`, by default all. In a pause between windows they include an extrapolation
        to the next window. Raises TargetGone if the process was removed.
        """
        with self._lock:
            self._require_held(target)
            wanted = target.kinds if kinds is None else kinds
            names = tuple(name for name in target.kinds if name in wanted)
            parts = target.recordings.sums(names)
            # Take the time last: the sums can't hold waits that are later than it.
            facts = target.facts(names, self.overhead(target), self.losses(target))
            return ProcessSums(target, facts, parts)

    def report(self, sums: ProcessSums, since: ProcessSums | None = None) -> Report:
        """The profiles of the time from `since` to `sums`, two moments of the same process.

        Without labels of handlers: see reported(). None: from the first start; without the kinds
        whose samples only add up while somebody keeps the sums of an earlier moment (CPU). Values
        of kinds that show a moment are the difference to the earlier one. Later reports share the
        Location objects. The time of a profile is that of the earlier moment, its duration the time
        that the process was recorded since. Raises TargetGone if the process was removed.
        """
        with self._lock:
            self._require_held(sums.target)
            return live_report(sums, since, self._options)

    def overhead(self, target: LiveTarget) -> Overhead:
        """What recording has cost a process since its first start, estimated.

        Raises TargetGone if the process was removed.
        """
        with self._lock:
            self._require_held(target)
            recorded = target.recorded
            recorded.read_cpu_time()
            cost = target.recordings.cost()
            used_ns = recorded.cpu_ns, recorded.kernel_ns
            return Overhead(cost.hits, cost.samples, cost.hit_ns, *used_ns)

    def losses(self, target: LiveTarget | None = None) -> tuple[Loss, ...]:
        """What the profilers lost of a process since it was added; None: of all together so far."""
        with self._lock:
            together = self.profilers.losses()
            if target is not None:
                return losses_together(target.recordings.losses(), together)
            by_target = (target.recordings.losses() for target in self._targets.values())
            return losses_in_all((*self._lost_before, *chain(*by_target), *together))

    def poll(self) -> None:
        """Poll the profilers if a process is recorded."""
        with self._lock:
            recorded = [target for target in self._targets.values() if target.is_recording]
            if recorded:
                self.profilers.poll()
            apart_s = max(_SAMPLES_S, _SAMPLES_EACH_S * len(recorded))
            if (now_s := time.monotonic()) < self._polled_s + apart_s:
                return
            self._polled_s = now_s
            for recorded_target in recorded:
                recorded_target.recordings.poll()

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
            if self._files:
                self._files.close()

    def _attach(self, target: LiveTarget) -> None:
        began_ns = target.recordings.start()
        if target.handlers:
            target.handlers.start()
        target.recorded.begin_cpu()
        target.started_ns = began_ns
        self._require_running(target)
        target.started_unix_ns = target.started_unix_ns or time.time_ns()

    def _detach(self, target: LiveTarget) -> int:
        """End the recording of a process; returns when that was (CLOCK_MONOTONIC, ns)."""
        if target.handlers:
            target.handlers.stop()
        ended_ns = end_together([target.recordings])
        target.recorded.read_cpu_time(is_over=True)
        target.recordings.stop()
        return ended_ns

    def _require_held(self, target: LiveTarget) -> None:
        if self._targets.get(target.number) is not target:
            raise TargetGone(f"Process {target.pid} was removed from the recording.")

    def _require_running(self, target: LiveTarget) -> None:
        self._notice_ending(target)
        if not target.started_unix_ns:  # nothing was recorded before, either
            target.recorded.target.require_running()
        if target.ending:
            raise TargetGone(f"The recording has ended: {target.ending.text}.")
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
        checked_s = time.monotonic()
        while not self._closing.wait(self.profilers.tick_s):
            self.poll()
            apart_s = max(_ENDINGS_S, _ENDINGS_EACH_S * len(self._targets))
            if time.monotonic() >= checked_s + apart_s:
                checked_s = time.monotonic()
                self.notice_endings()
