"""The ebpfprof that serve starts for execution traces, and the messages between them.

A process of its own: a trace takes much memory for a moment, and finding its names takes long,
which other requests would wait for. Its messages are in ebpfprof.tracing.flight_recorder.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import in_one_line
from ebpfprof.errors import (
    AttachFailed,
    BccMissing,
    CorruptBinary,
    EbpfprofError,
    KernelUnsupported,
    NoSuchProcess,
    NotGoProgram,
    PermissionDenied,
    TargetGone,
    UnsupportedGo,
    UnsupportedTarget,
)
from ebpfprof.server.served_child import ServedChild, command_of
from ebpfprof.system.channel import ChannelError, result_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_HOPELESS: Final = (
    NotGoProgram,
    UnsupportedGo,
    UnsupportedTarget,
    CorruptBinary,
    KernelUnsupported,
    PermissionDenied,
    BccMissing,
)
OTHER: Final = "The ebpfprof that recorded it"
_ANSWER_S: Final = 10.0  # how long it may take, at the end, to answer the last request
_END_S: Final = 5.0  # and then to detach, before it is killed


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """How traces are recorded.

    `last_s`: how many of the last seconds are kept; None: none. `max_overhead`: how much of its
    CPU time a process may lose to a trace, in percent; 0: no bound. For the rest see OpenOptions.
    """

    last_s: float | None = None
    max_overhead: float = 0.0
    allow_unknown_go: bool = False
    runtime: str | None = None

    def command(self) -> Sequence[str]:
        """The command line of ebpfprof.commands.served_trace."""
        return command_of("served-trace")

    def request(self, pid: int, **which: object) -> dict[str, Any]:
        """The first message to the child; `which`: last_s, or duration_s and format_name."""
        return {
            "pid": pid,
            "max_overhead": self.max_overhead,
            "allow_unknown_go": self.allow_unknown_go,
            "runtime": self.runtime,
            **which,
        }


def not_recorded(error: Exception | None) -> EbpfprofError:
    """Why there is no trace: a child failed with this error, or ended too early."""
    why = in_one_line(str(error or f"{OTHER} ended too early."))
    if isinstance(error, TargetGone | NoSuchProcess):
        return TargetGone(why)
    return AttachFailed(f"No trace was recorded. {why}")


def trace_file(answer: object, data: bytes) -> TraceFile:
    """The trace that a child made. Raises what it raised, or ChannelError."""
    comments = result_of(answer, OTHER)
    if not isinstance(comments, list):
        raise ChannelError(f"{OTHER} sent no comments.")
    return TraceFile(data, tuple(map(str, comments)))


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace in one of the formats; `comments` say what is missing in it."""

    data: bytes
    comments: tuple[str, ...] = ()


class FlightChild:
    """Keeps the last seconds of one process. Belongs to one event loop."""

    def __init__(self, pid: int, settings: TraceSettings, turn: asyncio.Lock) -> None:
        """For a process with this pid; run() starts it.

        With `turn` children make traces one after the other: each takes much memory meanwhile.
        """
        self._pid, self._settings = pid, settings
        self._turn = turn
        self._begun = asyncio.Event()
        self._answer: asyncio.Future[TraceFile] | None = None
        self._child: ServedChild | None = None
        self.is_recording = False
        """Whether the probes are attached."""
        self.lost_ns = 0.0
        """The CPU time that it took the process so far, estimated."""
        self.left: dict[str, TraceFile] = {}
        """The last seconds of a process that ended, by format, once run() has returned."""
        self.failure: EbpfprofError | None = None
        """Why it ended, if not with the process; once run() has returned."""
        self.is_hopeless = False
        """Whether another one would fail, too."""

    async def run(self) -> None:
        """Start it, and listen until it has ended; when cancelled, kill it."""
        request = self._settings.request(self._pid, last_s=self._settings.last_s)
        child = self._child = await ServedChild.start(self._settings.command(), request, OTHER)
        try:
            async for message, data in child.frames():
                self._note(message, data)
            await child.wait()
            if not self.left:
                self.failure = not_recorded(child.error)
                self.is_hopeless = isinstance(child.error, _HOPELESS)
        finally:
            await child.close()
            self.is_recording = False
            self._begun.set()
            if self._answer and not self._answer.done():
                self._answer.cancel()

    async def trace(self, format_name: str, last_s: float | None) -> TraceFile | None:
        """The last seconds until now: all that are kept, or `last_s`; None if it has ended.

        Raises EbpfprofError if they can't be made into a trace.
        """
        await self._begun.wait()
        async with self._turn:
            if not self.is_recording or not self._child:
                return None
            self._answer = asyncio.get_running_loop().create_future()
            self._child.send({"format": format_name, "last_s": last_s})
            await asyncio.wait([self._answer])
            return None if self._answer.cancelled() else self._answer.result()

    async def close(self) -> None:
        """End it, once its last answer is there; if it does not end, kill it."""
        child = self._child
        if child is None or child.has_ended:
            return
        with suppress(TimeoutError):  # it is killed below
            await asyncio.wait_for(self._no_turn(), _ANSWER_S)
        self.is_recording = False
        child.hang_up()
        try:
            await asyncio.wait_for(child.wait(), _END_S)
        except TimeoutError:
            child.kill()

    async def _no_turn(self) -> None:
        async with self._turn:
            pass

    def _note(self, message: Any, data: bytes) -> None:  # noqa: ANN401 - JSON
        """Take a message of the child. Raises ChannelError if it is not one of those agreed on."""
        match message:
            case {"recording": True}:
                self.is_recording = True
                self._begun.set()
            case {"lost_ns": float() | int() as lost_ns}:
                self.lost_ns = max(self.lost_ns, lost_ns)
            case {"left": str(format_name), "answer": answer}:
                self.left[format_name] = trace_file(answer, data)
            case {"answer": answer}:
                self._take_answer(answer, data)

    def _take_answer(self, answer: object, data: bytes) -> None:
        if not self._answer or self._answer.done():
            return
        try:
            self._answer.set_result(trace_file(answer, data))
        except (EbpfprofError, OSError, RuntimeError) as error:
            self._answer.set_exception(EbpfprofError(f"No trace was made. {error}"))
