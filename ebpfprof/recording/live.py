"""Targets that are recorded for as long as somebody asks, by one loaded program."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ebpfprof.console.text import printable
from ebpfprof.errors import AttachFailed, TargetGone
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss, losses_since, losses_together
from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.process.process import TargetEnd
from ebpfprof.profile.model import Kind
from ebpfprof.profilers.options import Options
from ebpfprof.recording.target import Recorded, compile_collectors, open_recorded, programs_for
from ebpfprof.system.heap import give_back_large_blocks

if TYPE_CHECKING:  # what reads executables is imported late
    from ebpfprof.profilers.cpu.sample_table import SampleSums
    from ebpfprof.recording.report import Names, Recording, Report

_TICK_S = 0.1  # longer, and the first samples of many processors would not find room
_ENDINGS_S = 0.5


class LiveTarget:
    """A process that can be recorded at any time; made by LiveSession.add."""

    def __init__(self, number: int, recorded: Recorded, held: ExitStack, names: Names) -> None:
        self._number = number
        self._recorded = recorded
        self._held = held
        self._names = names
        self._users = 0
        self._was_sampled = False
        self._is_sampled = False
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
    def kinds(self) -> tuple[Kind, ...]:
        """The profiles it can have."""
        return self._recorded.kinds

    @property
    def ending(self) -> TargetEnd | None:
        """Why it went; None while it runs."""
        return self._recorded.ending

    @property
    def is_recording(self) -> bool:
        """Whether the probes are in it."""
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
class Samples:
    """CPU samples of a target since a moment; made by LiveSession.begin_samples.

    The moment is told by Unix time, and by how long the target had been watched by then, what that
    had cost it and what had been lost.
    """

    sums: SampleSums
    unix_ns: int
    watched_ns: int
    overhead: Overhead
    losses: tuple[Loss, ...]


class LiveSession:
    """One loaded program, and targets that come and go. Safe to be used by several threads.

    A context manager: leaving it removes every probe. A thread of its own notices when targets go
    and teaches the kernel how to unwind.
    """

    def __init__(self, options: Options, *, capacity: int = 64) -> None:
        """Compile and load for up to `capacity` targets. Raises any of ebpfprof.errors."""
        give_back_large_blocks()
        self._options = options
        self._capacity = capacity
        self._programs = programs_for(options)
        self._lock = threading.RLock()
        self._targets: dict[int, LiveTarget] = {}  # by number
        # The one that is free longest is taken first: an event may still have been on its way.
        self._free_numbers = deque(range(capacity))
        self._sampled = 0
        with ExitStack() as held:
            self._files = held.enter_context(WorkerFileOpener())
            self._waits, self._cpu = compile_collectors(capacity, options, held)
            for collector in (self._waits, self._cpu):
                if collector:
                    collector.load()
            held.pop_all()  # close() does it
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="ebpfprof-live", daemon=True)
        self._thread.start()

    def add(self, pid: int) -> LiveTarget:
        """Open and inspect a process; no probe yet.

        Raises any of ebpfprof.errors: NoSuchProcess, NotGoProgram, UnsupportedGo, PermissionDenied
        and so on; AttachFailed if there are too many, until remove() makes room.
        """
        from ebpfprof.recording.report import Names

        with ExitStack() as held:
            recorded = open_recorded(pid, self._options, held, self._files, self._programs)
            with self._lock:
                if not self._free_numbers:
                    raise AttachFailed(
                        f"Process {pid} has no room: {self._capacity} processes are recorded "
                        "already. Record it by an ebpfprof of its own."
                    )
                number = self._free_numbers.popleft()
                target = LiveTarget(number, recorded, held.pop_all(), Names())
                target._runs_before = self._runs(number)
                target._losses_before = self.losses()
                self._targets[number] = target
        return target

    def start(self, target: LiveTarget) -> None:
        """Put the probes in, unless they are; each start wants its stop().

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
        """Take the probes out if nobody else wants them; the sums stay."""
        with self._lock:
            if target._users > 1:
                target._users -= 1
            elif target._users == 1:
                target._pause()
                self._detach(target)

    def remove(self, target: LiveTarget) -> None:
        """Let go of a target, whoever wants it. Nothing more can be had of it."""
        with self._lock:
            if not self._holds(target):
                return
            del self._targets[target._number]
            if target._users:
                target._pause()
                self._detach(target)
            for collector in (self._waits, self._cpu):
                if collector:
                    collector.forget(target._number)
            self._free_numbers.append(target._number)
            target._held.close()

    def snapshot(
        self,
        target: LiveTarget,
        kinds: Collection[str] | None = None,
        *,
        settled: bool = False,
    ) -> Report:
        """The waits of a target since its first start: sums that never decrease.

        Of the block and mutex profiles: those of `kinds`, or all. Locations are the same objects in
        later snapshots. The time of a profile is when the first start was, its duration how long
        the target was watched since. In a pause between windows, what the next one is likely to
        hold is in the sums; if they are to be `settled`, that is not so, and the duration is the
        time that windows until now stand for. Raises TargetGone if it was let go of.
        """
        with self._lock:
            self._require_held(target)
            recorded, number = target._recorded, target._number
            wanted = set(recorded.kinds if kinds is None else kinds) - {"cpu"}
            kept = tuple(kind for kind in recorded.kinds if kind in wanted)
            known = self._known_waits(recorded, number, settled) if self._waits and kept else {}
            # The time comes last: no more can have been waited in it than the sums have.
            recording = replace(self._recording(target, kept), **known)
            return self._reported(target, recording)

    def begin_samples(self, target: LiveTarget) -> Samples | None:
        """CPU samples of a target from now on, for as long as the caller keeps them.

        None if it has no CPU profile. Raises TargetGone if it was let go of.
        """
        with self._lock:
            self._require_held(target)
            if self._cpu is None:
                return None
            self._cpu.poll()
            unix_ns, watched_ns = time.time_ns(), target.watched_ns  # before there is a sample
            overhead, losses = self.overhead(target), self.losses()
            sums = self._cpu.begin_sums(target._number)
            return Samples(sums, unix_ns, watched_ns, overhead, losses)

    def sampled(self, target: LiveTarget, samples: Samples, *, restart: bool = False) -> Report:
        """The CPU profile of these samples so far; they begin anew now if `restart`.

        Its duration is how long the target was watched in that time. Raises TargetGone if the
        target was let go of.
        """
        with self._lock:
            self._require_held(target)
            assert self._cpu is not None
            self._cpu.poll()
            overhead, losses = self.overhead(target), self.losses()
            stacks = self._cpu.read_sums(samples.sums, restart=restart)
            recording = replace(
                self._recording(target, ("cpu",)),
                started_ns=samples.watched_ns,
                started_unix_ns=samples.unix_ns,
                overhead=overhead - samples.overhead,
                losses=losses_since(losses, samples.losses),
                stacks=stacks,
                sampler=self._cpu.sampler(target._number),
            )
            if restart:
                samples.unix_ns, samples.watched_ns = time.time_ns(), recording.ended_ns
                samples.overhead, samples.losses = overhead, losses
            return self._reported(target, recording)

    def overhead(self, target: LiveTarget) -> Overhead:
        """What recording has cost a target since its first start, estimated.

        Raises TargetGone if it was let go of.
        """
        with self._lock:
            self._require_held(target)
            recorded = target._recorded
            recorded.look_at_cpu()
            hits, samples = self._runs(target._number)
            hits_before, samples_before = target._runs_before
            hit_ns = self._waits.hit_ns if self._waits else None
            return Overhead(hits - hits_before, samples - samples_before, hit_ns, recorded.cpu_ns)

    def losses(self) -> tuple[Loss, ...]:
        """What was lost so far, all targets together."""
        with self._lock:
            return losses_together(*(c.losses() for c in (self._waits, self._cpu) if c))

    def close(self) -> None:
        """Remove all probes and let go of all targets."""
        self._closing.set()
        self._thread.join()
        with self._lock:
            for target in self._targets.values():
                if target._recorded.watch:
                    target._recorded.watch.stop()
            for collector in (self._waits, self._cpu):
                if collector:
                    collector.close()
            for target in self._targets.values():
                target._held.close()
            self._targets.clear()
            self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attach(self, target: LiveTarget) -> None:
        recorded, number = target._recorded, target._number
        began_ns = 0
        if self._waits and recorded.go:
            if not self._options.is_bounded:
                began_ns = self._waits.attach(number, recorded.go)
            else:
                from ebpfprof.profilers.waits.windows import Watch

                share = self._options.max_overhead / 100
                recorded.watch = recorded.watch or Watch(
                    self._waits,
                    number,
                    recorded.go,
                    share,
                    lambda: self._runs(number)[1].ns,
                )
                began_ns = recorded.watch.start()
        if self._cpu and recorded.objects:
            if target._was_sampled:
                self._cpu.resume(number)
            else:
                self._cpu.attach(number, recorded.target, recorded.objects, recorded.go)
            target._was_sampled = target._is_sampled = True
            self._sampled += 1
            if self._sampled == 1:
                self._cpu.start()
        recorded.begin_cpu()
        target._started_ns = began_ns or kernel_now_ns()
        target.started_unix_ns = target.started_unix_ns or time.time_ns()
        self._require_running(target)

    def _detach(self, target: LiveTarget) -> None:
        recorded, number = target._recorded, target._number
        recorded.look_at_cpu(is_over=True)
        if self._cpu and target._is_sampled:
            target._is_sampled = False
            self._cpu.pause(number)
            self._sampled -= 1
            if self._sampled == 0:
                self._cpu.halt()
        if recorded.watch:
            recorded.watch.stop()
        if self._waits and recorded.go:
            self._waits.detach_target(number)

    def _known_waits(self, recorded: Recorded, number: int, settled: bool) -> dict[str, Any]:
        """What was recorded of a target's waits, for a Recording."""
        assert self._waits is not None
        watch = recorded.watch
        if watch is None:
            totals, holds = self._waits.snapshot(), self._waits.holds()
            return {"totals": totals.get(number, []), "holds": holds.get(number, {})}
        if not settled:
            return {"totals": watch.totals(), "watched": watch.watched(), "holds": watch.holds()}
        known, watched = watch.settled()
        ended_ns = watched.stood_for_ns
        return {"totals": known, "watched": watched, "holds": watch.holds(), "ended_ns": ended_ns}

    def _recording(self, target: LiveTarget, kinds: tuple[Kind, ...]) -> Recording:
        """What is known of a target, without what was recorded."""
        from ebpfprof.recording.report import Recording

        recorded = target._recorded
        recorded.notice_tracer()
        return Recording(
            target=recorded.target,
            go=recorded.go,
            objects=recorded.objects,
            kinds=kinds,
            started_ns=0,
            started_unix_ns=target.started_unix_ns,
            ended_ns=target.watched_ns,
            ending=recorded.ending,
            traced=recorded.traced,
            watched=None,
            overhead=self.overhead(target),
            own_cost="",  # most of it is not this target's
            totals=[],
            holds={},
            begun={},
            parked=None,
            unread=None,
            stacks={},
            sampler="",
            losses=losses_since(self.losses(), target._losses_before),
        )

    def _reported(self, target: LiveTarget, recording: Recording) -> Report:
        from ebpfprof.recording.report import report

        found = report(recording, self._options, target._names)
        if recording.traced:
            found.hints.append(recording.traced)
        return found

    def _runs(self, number: int) -> tuple[Runs, Runs]:
        """How often our programs ran for the targets that had a number: probes, samples."""
        waits = self._waits.runs(number) if self._waits else Runs()
        return waits, self._cpu.runs(number) if self._cpu else Runs()

    def _holds(self, target: LiveTarget) -> bool:
        return self._targets.get(target._number) is target

    def _require_held(self, target: LiveTarget) -> None:
        if not self._holds(target):
            raise TargetGone(f"Process {target.pid} was let go of.")

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
                target._pause()
                recorded.ending = ending
                self._detach(target)
            recorded.ending = ending

    def _poll(self) -> None:
        looked_s = time.monotonic()
        while not self._closing.wait(self._cpu.tick_s if self._cpu and self._sampled else _TICK_S):
            with self._lock:
                if self._cpu and self._sampled:
                    self._cpu.poll()
                if self._waits and any(each.is_recording for each in self._targets.values()):
                    self._waits.poll()
                if time.monotonic() >= looked_s + _ENDINGS_S:
                    looked_s = time.monotonic()
                    for target in list(self._targets.values()):
                        self._notice_ending(target)
