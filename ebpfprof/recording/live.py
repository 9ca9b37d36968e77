"""Processes that are recorded for as long as is asked for, by programs that are loaded once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ebpfprof.console.text import printable
from ebpfprof.errors import AttachFailed, TargetGone
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss, losses_since
from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.process.process import TargetEnd
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.profiler import OpenedProcess, Profiler
from ebpfprof.recording.profiler_set import FoundBy, ProfilerSet
from ebpfprof.recording.target import Recorded, open_recorded, programs_for
from ebpfprof.system.heap import give_back_large_blocks

if TYPE_CHECKING:  # what reads executables is imported late, while BCC compiles
    from ebpfprof.profilers.report_builder import Recording, Report

_TICK_S = 0.1  # longer, and the first samples of many processors would not find room
_ENDINGS_S = 0.5


class LiveTarget:
    """A process that can be recorded at any time; made by LiveSession.add."""

    def __init__(self, number: int, recorded: Recorded, held: ExitStack) -> None:
        self._number = number
        self._recorded = recorded
        self._held = held
        self._users = 0
        self._runs_before = Runs(), Runs()  # of those that had its number before
        self._losses_before: tuple[Loss, ...] = ()  # before it was opened
        self._watched_ns = 0  # before the present start
        self._started_ns = 0  # CLOCK_MONOTONIC; of the present start
        self.started_unix_ns = 0
        """When it was first recorded, Unix time; 0: not yet."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._recorded.target.pid

    @property
    def name(self) -> str:
        """What its command is called, made harmless."""
        return self._recorded.target.name

    @property
    def go_version(self) -> str | None:
        """Its version of Go, such as "go1.27.3"; None if it is no Go program."""
        go = self._recorded.go
        return printable(go.binary.version.text) if go else None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The profiles it can have."""
        return self._recorded.kinds

    @property
    def ending(self) -> TargetEnd | None:
        """Why it went; None while it runs."""
        return self._recorded.ending

    @property
    def is_recording(self) -> bool:
        """Whether it is recorded."""
        return self._users > 0 and self.ending is None

    @property
    def watched_ns(self) -> int:
        """For how many nanoseconds it was recorded, until now or until it went."""
        if not self.is_recording:
            return self._watched_ns
        return self._watched_ns + kernel_now_ns() - self._started_ns

    def _pause(self) -> None:
        """Stop the clock."""
        self._watched_ns, self._users = self.watched_ns, 0


@dataclass(eq=False, slots=True)
class Since:
    """A moment from which on samples of a process are added up; made by LiveSession.begin.

    It is told by Unix time, and by how long the process had been watched by then, what that had
    cost it and what had been lost.
    """

    marks: dict[Profiler, Any]
    unix_ns: int
    watched_ns: int
    overhead: Overhead
    losses: tuple[Loss, ...]


class LiveSession:
    """Programs that are loaded once, and processes that come and go. Any thread may use it.

    A context manager: leaving it removes every probe. Profilers are polled, and endings of
    processes noticed, by a thread of its own, or, if there `is_no_thread`, whenever poll() is
    called.
    """

    def __init__(self, options: Options, *, capacity: int = 64, is_no_thread: bool = False) -> None:
        """Compile for up to `capacity` processes, and load unless there `is_no_thread`.

        Without a thread, load() is for the caller. Raises any of ebpfprof.errors.
        """
        give_back_large_blocks()
        self._options = options
        self._capacity = capacity
        self._programs = programs_for(options)
        self._lock = threading.RLock()
        self._targets: dict[int, LiveTarget] = {}  # by number
        # The one that is free longest is taken first: an event may still have been on its way.
        self._free_numbers = deque(range(capacity))
        self._is_loaded = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        with ExitStack() as held:
            self._files = held.enter_context(WorkerFileOpener())
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

        Raises KernelUnsupported, PermissionDenied and what compiling does.
        """
        self.profilers.load(sum(each._recorded.goroutines() for each in self._targets.values()))
        self._is_loaded = True

    def add(self, pid: int) -> LiveTarget:
        """Open and inspect a process; no probe yet.

        Raises any of ebpfprof.errors: NoSuchProcess, NotGoProgram, UnsupportedGo, PermissionDenied
        and so on; AttachFailed if there are too many, until remove() makes room.
        """
        with ExitStack() as held:
            recorded = open_recorded(pid, self._options, held, self._files, self._programs)
            with self._lock:
                if not self._free_numbers:
                    raise AttachFailed(
                        f"Process {pid} has no room: {self._capacity} processes are recorded "
                        "already. Record it by an ebpfprof of its own."
                    )
                number = self._free_numbers[0]
                opened = OpenedProcess(
                    recorded.target,
                    recorded.go,
                    held,
                    lambda own: self.profilers.ns_of_others(number, own),
                )
                self.profilers.open(number, opened, recorded.kinds)
                target = LiveTarget(number, recorded, held.pop_all())
                if self._is_loaded:
                    target._runs_before = self.profilers.runs(number)
                    target._losses_before = self.losses()
                self._free_numbers.popleft()
                self._targets[number] = target
        return target

    def start(self, target: LiveTarget) -> None:
        """Record a process, unless it is recorded; each start wants its stop().

        Raises AttachFailed, or TargetGone if it has gone.
        """
        with self._lock:
            self._require_running(target)
            if target._users == 0:
                try:
                    self._attach(target)
                except BaseException:
                    self._detach(target)
                    self._require_running(target)  # that it went says more
                    raise
            target._users += 1

    def stop(self, target: LiveTarget) -> None:
        """Record a process no more unless others want that; the sums stay."""
        with self._lock:
            if target._users > 1:
                target._users -= 1
            elif target._users == 1:
                target._pause()
                self._detach(target)

    def remove(self, target: LiveTarget) -> None:
        """Close a process, whatever wants it recorded. Nothing more can be had of it."""
        with self._lock:
            if not self._holds(target):
                return
            del self._targets[target._number]
            if target._users:
                target._pause()
                self._detach(target)
            self.profilers.forget(target._number)
            self._free_numbers.append(target._number)
            target._held.close()

    def snapshot(
        self,
        target: LiveTarget,
        kinds: Collection[str] | None = None,
        *,
        settled: bool = False,
    ) -> Report:
        """The sums of a process since its first start, which never decrease.

        Of those of `kinds`, or of all, that keep sums. Locations are the same objects in later
        snapshots. The time of a profile is when the first start was, its duration how long the
        process was watched since. In a pause between windows, what the next one is likely to hold
        is in the sums; if they are to be `settled`, that is not so, and the duration is the time
        that windows until now stand for. Raises TargetGone if it was removed.
        """
        with self._lock:
            self._require_held(target)
            wanted = target.kinds if kinds is None else kinds
            names = tuple(name for name in target.kinds if name in wanted)
            found = self.profilers.snapshot(target._number, settled=settled) if names else []
            # The time comes last: no more can have been waited in it than the sums have.
            stands_for = [each.found.stands_for_ns for each in found]
            ended_ns = next((ns for ns in stands_for if ns is not None), target.watched_ns)
            return self._reported(target, found, names, ended_ns=ended_ns)

    def begin(self, target: LiveTarget) -> Since | None:
        """Add up samples of a process from now on, for as long as the caller keeps the result.

        Of the kinds that keep no sums; None if it has none of them. Raises TargetGone if it was
        removed.
        """
        with self._lock:
            self._require_held(target)
            unix_ns, watched_ns = time.time_ns(), target.watched_ns  # before there is a sample
            overhead, losses = self.overhead(target), self.losses()
            marks = self.profilers.begin(target._number)
            return Since(marks, unix_ns, watched_ns, overhead, losses) if marks else None

    def read(self, target: LiveTarget, since: Since, *, restart: bool = False) -> Report:
        """The profiles of what has come since a moment; it is now, from now on, if `restart`.

        Their duration is how long the process was watched in that time. Raises TargetGone if the
        process was removed.
        """
        with self._lock:
            self._require_held(target)
            found = self.profilers.read(target._number, since.marks, restart=restart)
            overhead, losses = self.overhead(target), self.losses()
            watched_ns = target.watched_ns
            report = self._reported(
                target,
                found,
                target.kinds,
                started_ns=since.watched_ns,
                started_unix_ns=since.unix_ns,
                ended_ns=watched_ns,
                overhead=overhead - since.overhead,
                losses=losses_since(losses, since.losses),
            )
            if restart:
                since.unix_ns, since.watched_ns = time.time_ns(), watched_ns
                since.overhead, since.losses = overhead, losses
            return report

    def overhead(self, target: LiveTarget) -> Overhead:
        """What recording has cost a process since its first start, estimated.

        Raises TargetGone if it was removed.
        """
        with self._lock:
            self._require_held(target)
            recorded = target._recorded
            recorded.look_at_cpu()
            hits, samples = self.profilers.runs(target._number)
            hits_before, samples_before = target._runs_before
            hit_ns = self.profilers.hit_ns
            return Overhead(hits - hits_before, samples - samples_before, hit_ns, recorded.cpu_ns)

    def losses(self) -> tuple[Loss, ...]:
        """What was lost so far, all processes together."""
        with self._lock:
            return self.profilers.losses()

    def poll(self) -> None:
        """Have profilers do what must be done while processes are recorded."""
        with self._lock:
            if any(each.is_recording for each in self._targets.values()):
                self.profilers.poll()

    def notice_endings(self) -> None:
        """Look which processes have gone, and record these no more."""
        with self._lock:
            for target in list(self._targets.values()):
                self._notice_ending(target)

    def close(self) -> None:
        """Remove all probes and close all processes."""
        self._closing.set()
        if self._thread:
            self._thread.join()
        with self._lock:
            self.profilers.close()
            for target in self._targets.values():
                target._held.close()
            self._targets.clear()
            self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attach(self, target: LiveTarget) -> None:
        began_ns = self.profilers.start(target._number)
        target._recorded.begin_cpu()
        target._started_ns = began_ns
        target.started_unix_ns = target.started_unix_ns or time.time_ns()
        self._require_running(target)

    def _detach(self, target: LiveTarget) -> None:
        target._recorded.look_at_cpu(is_over=True)
        self.profilers.stop(target._number)

    def _reported(
        self,
        target: LiveTarget,
        found: Sequence[FoundBy],
        kinds: tuple[str, ...],
        **known: Any,  # noqa: ANN401 - fields of Recording
    ) -> Report:
        from ebpfprof.profilers.report_builder import Recording

        recorded = target._recorded
        recorded.notice_tracer()
        fields: dict[str, Any] = {
            "started_ns": 0,
            "started_unix_ns": target.started_unix_ns,
            "overhead": None,
            "losses": None,
            **known,
        }
        if fields["overhead"] is None:
            fields["overhead"] = self.overhead(target)
        if fields["losses"] is None:
            fields["losses"] = losses_since(self.losses(), target._losses_before)
        recording = Recording(
            target=recorded.target,
            go=recorded.go,
            kinds=kinds,
            ending=recorded.ending,
            traced=recorded.traced,
            own_cost="",  # most of it is not this process's
            **fields,
        )
        report = reported(target, recording, found, self._options)
        if recording.traced:
            report.hints.append(recording.traced)
        return report

    def _holds(self, target: LiveTarget) -> bool:
        return self._targets.get(target._number) is target

    def _require_held(self, target: LiveTarget) -> None:
        if not self._holds(target):
            raise TargetGone(f"Process {target.pid} was removed from the recording.")

    def _require_running(self, target: LiveTarget) -> None:
        self._notice_ending(target)
        if target.ending:
            raise TargetGone(f"Nothing is recorded any more: {target.ending.text}.")
        self._require_held(target)

    def _notice_ending(self, target: LiveTarget) -> None:
        recorded = target._recorded
        if recorded.ending is None and self._holds(target):
            ending = recorded.target.ending()
            if ending and target._users:
                recorded.ended_ns = kernel_now_ns()
                target._pause()
                recorded.ending = ending
                self._detach(target)
            recorded.ending = ending

    def _poll(self) -> None:
        looked_s = time.monotonic()
        while not self._closing.wait(self.profilers.tick_s):
            self.poll()
            if time.monotonic() >= looked_s + _ENDINGS_S:
                looked_s = time.monotonic()
                self.notice_endings()


def reported(
    target: LiveTarget, recording: Recording, found: Sequence[FoundBy], options: Options
) -> Report:
    """The profiles of what profilers have found of a process, with names."""
    from ebpfprof.profilers.report_builder import ReportBuilder

    builder = ReportBuilder(recording, options)
    for each in found:
        each.profiler.report(target._number, each.found, builder)
    return builder.finished()
