"""Keeps the last seconds of an execution trace of the processes that are served (serve --last)."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.console.terminal import say
from ebpfprof.console.text import in_one_line, printable
from ebpfprof.errors import AttachFailed, TargetGone, to_type
from ebpfprof.server.trace_child import FlightChild, TraceFile, TraceSettings

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess

MOST: Final = 4
"""Of how many processes at once the last seconds are kept."""
KEPT_S: Final = 600.0
"""For how long the last seconds of a process that ended are kept."""
MOST_LEFT: Final = 8
"""Of how many processes that ended."""
MOST_LEFT_BYTES: Final = 64 << 20
"""Of all processes that ended together; but the newest is kept, however large."""
CHECK_S: Final = 0.25
RETRY_S: Final = 30.0
_LEAVES_S: Final = 120.0  # how long it may take to write what is left of a process that ended


class NoLastSecondsError(Exception):
    """There is no trace of the last seconds; `status` is that of HTTP, the message a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class LastSeconds:
    """A file: a trace of the last seconds until `end_s` (Unix time)."""

    file: TraceFile
    end_s: float


@dataclass(eq=False, slots=True)
class _Recorded:
    """A process that is recorded, or was until its child failed."""

    child: FlightChild
    running: asyncio.Future[None]
    earlier_lost_ns: float = 0.0
    failure: Exception | None = None
    retry_s: float = 0.0  # CLOCK_MONOTONIC
    reported: str = ""
    """The failure that was last written to stderr, of this child or the one before it."""

    @property
    def lost_ns(self) -> float:
        return self.earlier_lost_ns + self.child.lost_ns


@dataclass(frozen=True, slots=True)
class _Left:
    """What is left of a process that ended: files by their formats, and when (Unix time)."""

    files: dict[str, TraceFile]
    lost_ns: float
    end_s: float = field(default_factory=time.time)

    @property
    def size(self) -> int:
        return sum(len(file.data) for file in self.files.values())


class FlightRecorders:
    """Those of the processes of a manager, each in a process of its own. Belongs to its event loop.

    At most MOST processes have one: those that were served first. What is left of a process that
    ended is kept for KEPT_S.
    """

    def __init__(self, manager: Manager, settings: TraceSettings) -> None:
        """Without `settings.last_s` no process has one."""
        self._manager = manager
        self.settings = settings
        self._turn = asyncio.Lock()
        self._recorded: dict[RecordedProcess, _Recorded] = {}
        self._left: dict[RecordedProcess, _Left] = {}  # in the order in which they ended

    async def run(self) -> None:
        """Start them as processes are served, until the manager stops; then end all."""
        stopping = self._manager.stopping
        try:
            while self.settings.last_s is not None and not stopping.is_set():
                self._check()
                with suppress(TimeoutError):  # not stopping: the next check is due
                    await asyncio.wait_for(stopping.wait(), CHECK_S)
            await asyncio.gather(*(recorded.child.close() for recorded in self._recorded.values()))
            await asyncio.gather(*(recorder.running for recorder in self._recorded.values()))
        finally:
            for recorder in self._recorded.values():
                recorder.running.cancel()
            runs = [recorder.running for recorder in self._recorded.values()]
            await asyncio.gather(*runs, return_exceptions=True)

    async def trace(
        self, process: RecordedProcess, format_name: str, last_s: float | None
    ) -> LastSeconds:
        """The last `last_s` seconds; all that are kept if it is None, or the process has ended.

        Raises NoLastSecondsError, or EbpfprofError if they can't be made into a trace.
        """
        recorded = self._recorded.get(process)
        if recorded:
            file = await recorded.child.trace(format_name, last_s)
            if file is not None:
                return LastSeconds(file, time.time())
            await asyncio.wait([recorded.running])
            self._check()
        if left := self._left.get(process):
            return LastSeconds(left.files[format_name], left.end_s)
        raise self.refusal(process)

    def state(self, process: RecordedProcess) -> tuple[bool, str]:
        """Whether there are last seconds of a process, and if not, why, in a sentence."""
        recorded = self._recorded.get(process)
        is_there = process in self._left or bool(recorded and recorded.child.is_recording)
        return is_there, "" if is_there else str(self.refusal(process))

    def lost_ns(self, process: RecordedProcess) -> float:
        """The CPU time that a process has spent on it, estimated."""
        recorder = self._recorded.get(process) or self._left.get(process)
        return recorder.lost_ns if recorder else 0.0

    def refusal(self, process: RecordedProcess) -> NoLastSecondsError:
        """Why there are no last seconds of a process, if there are none."""
        if self._manager.stopping.is_set():
            return NoLastSecondsError(503, "This server is shutting down.")
        if self.settings.last_s is None:
            return NoLastSecondsError(
                404,
                "The last seconds are not kept here: start serve with --last 10s. seconds=N "
                "records the next ones.",
            )
        if process.ending is not None:
            return NoLastSecondsError(
                404,
                f"{process.ending[:1].upper()}{process.ending[1:]}, and its last seconds are not "
                f"available: they are kept for {KEPT_S / 60:g} minutes, of {MOST_LEFT} processes.",
            )
        recorded = self._recorded.get(process)
        if recorded and recorded.failure:
            again = f" It is tried again every {RETRY_S:g} s."
            tried = "" if recorded.child.is_hopeless else again
            return NoLastSecondsError(500, f"{recorded.failure}{tried}")
        if not _is_go(process):
            return NoLastSecondsError(404, "Only Go programs can be traced.")
        if recorded or self._has_room:
            return NoLastSecondsError(503, "Its trace is starting: try again in a few seconds.")
        others = ", ".join(str(recorder.pid) for recorder in self._recorded)
        return NoLastSecondsError(
            503,
            f"The last seconds are kept for {MOST} processes at most, now of {others}. For this "
            f"one:{to_type(f'ebpfprof trace --last 5s {process.pid}')}",
        )

    @property
    def _has_room(self) -> bool:
        return sum(not recorded.running.done() for recorded in self._recorded.values()) < MOST

    def _check(self) -> None:
        """Take what ended children left, start what is missing, forget what is too old.

        Nothing once the manager stops, which ends the children.
        """
        if self._manager.stopping.is_set():
            return
        for process, recorded in list(self._recorded.items()):
            if recorded.running.done():
                self._note_end(process, recorded)
            elif process.ending is not None and time.time() - process.ended_s > _LEAVES_S:
                recorded.running.cancel()
        for process in self._manager.processes:
            is_new = process not in self._recorded and process not in self._left
            is_wanted = process.ending is None and _is_go(process)
            if is_new and is_wanted and self._has_room:
                self._recorded[process] = self._started(process)
        self._forget()

    def _started(self, process: RecordedProcess, lost_ns: float = 0.0) -> _Recorded:
        child = FlightChild(process.pid, self.settings, self._turn)
        return _Recorded(child, asyncio.ensure_future(child.run()), lost_ns)

    def _note_end(self, process: RecordedProcess, recorded: _Recorded) -> None:
        """A child has ended: with its process, or too early."""
        now_s = time.monotonic()
        if recorded.child.left:
            del self._recorded[process]
            self._left[process] = _Left(recorded.child.left, recorded.lost_ns)
            self._manager.kept.add(process)
        elif process.ending is not None:
            del self._recorded[process]
        elif recorded.failure is None:
            recorded.failure = recorded.child.failure or _bug(recorded.running)
            recorded.retry_s = now_s + (math.inf if recorded.child.is_hopeless else RETRY_S)
            if not isinstance(recorded.failure, TargetGone):  # the manager will notice that
                self._notify(process, recorded)
        elif now_s > recorded.retry_s and self._has_room:
            again = self._started(process, recorded.lost_ns)
            again.reported = recorded.reported
            self._recorded[process] = again

    def _notify(self, process: RecordedProcess, recorded: _Recorded) -> None:
        why = printable(in_one_line(str(recorded.failure)))
        if why != recorded.reported:  # it may be tried, and fail, every RETRY_S
            say(f"ebpfprof: The last seconds of process {process.pid}: {why}", err=True)
        recorded.reported = why

    def _forget(self) -> None:
        while self._left:
            oldest, left = next(iter(self._left.items()))
            size = sum(recorder.size for recorder in self._left.values())
            is_too_much = len(self._left) > 1 and size > MOST_LEFT_BYTES
            is_old = time.time() - left.end_s > KEPT_S
            if not (is_old or is_too_much or len(self._left) > MOST_LEFT):
                return
            del self._left[oldest]
            self._manager.kept.discard(oldest)


def _is_go(process: RecordedProcess) -> bool:
    return process.target is None or process.target.go_version is not None


def _bug(running: asyncio.Future[None]) -> Exception:
    error = None if running.cancelled() else running.exception()
    return AttachFailed(f"No trace was recorded. {error!r}" if error else "It took too long.")
