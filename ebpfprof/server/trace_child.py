"""The ebpfprof that serve starts for execution traces, and what it says to serve.

A process of its own: a trace takes much memory for a moment, and looking up its names much time,
which other requests would wait for.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import in_one_line
from ebpfprof.errors import AttachFailed, EbpfprofError, ExitCode, TargetGone
from ebpfprof.privileges.capabilities import passed_on

if TYPE_CHECKING:
    from collections.abc import Sequence

_GONE: Final = (ExitCode.TARGET_GONE, ExitCode.NO_SUCH_PROCESS)
_HOPELESS: Final = (
    ExitCode.NOT_GO_PROGRAM,
    ExitCode.UNSUPPORTED_GO,
    ExitCode.UNSUPPORTED_TARGET,
    ExitCode.CORRUPT_BINARY,
    ExitCode.KERNEL_UNSUPPORTED,
    ExitCode.PERMISSION_DENIED,
    ExitCode.BCC_MISSING,
)
_ITS_COMMAND: Final = " Type:\n"  # which is not for users
_SAID_BY: Final = "ebpfprof: "
_MOST_SAID: Final = 4096
_ANSWER_S: Final = 10.0  # how long it may take, at the end, to answer what was asked
_END_S: Final = 5.0  # and then to detach, before it is killed


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """How traces are recorded.

    `last_s`: how many of the last seconds are kept; None: none. `max_overhead`: how much of its
    CPU time a process may lose to a trace, in percent; 0: no bound.
    """

    last_s: float | None = None
    max_overhead: float = 0.0
    allow_unknown_go: bool = False

    def command(self, pid: int, *arguments: str) -> list[str]:
        """The command line of ebpfprof.commands.served_trace."""
        isolated = ["-I"] if sys.flags.isolated else []
        return [
            *(sys.executable, *isolated, "-m", "ebpfprof", "served-trace", "--pid", str(pid)),
            *("--max-overhead", f"{self.max_overhead:g}", *arguments),
            *(["--allow-unknown-go"] if self.allow_unknown_go else []),
        ]


async def started(command: Sequence[str], *, stdin: int) -> asyncio.subprocess.Process:
    """A process with our rights, whose stdout and stderr are pipes. Raises OSError."""
    pipe = asyncio.subprocess.PIPE
    with passed_on():
        return await asyncio.create_subprocess_exec(*command, stdin=stdin, stdout=pipe, stderr=pipe)


def failure(code: int, said: bytes) -> EbpfprofError:
    """Why a child that ended with this status has no trace; `said` is what it wrote to stderr."""
    last = said.decode(errors="replace").strip().rpartition(_SAID_BY)[2]
    why = in_one_line(last.partition(_ITS_COMMAND)[0]) or _ended_with(code)
    return TargetGone(why) if code in _GONE else AttachFailed(f"No trace was recorded. {why}")


def comments_in(said: bytes) -> tuple[str, ...]:
    """What a child that wrote a trace said of it on stderr."""
    lines = said.decode(errors="replace").splitlines()
    return tuple(each.removeprefix(_SAID_BY) for each in lines if each.startswith(_SAID_BY))


def _ended_with(code: int) -> str:
    how = f"ended with status {code}" if code >= 0 else f"was killed (signal {-code})"
    return f"The ebpfprof that recorded it {how}."


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace in one of the formats; `comments` say what is missing in it."""

    data: bytes
    comments: tuple[str, ...] = ()


class FlightChild:
    """Keeps the last seconds of one process. Belongs to one event loop.

    What it says is in ebpfprof.tracing.flight_recorder.
    """

    def __init__(self, pid: int, settings: TraceSettings, turn: asyncio.Lock) -> None:
        """For a process with this pid; run() starts it.

        With `turn` children make traces one after the other: each takes much memory meanwhile.
        """
        self._command = settings.command(pid, "--last", f"{settings.last_s}")
        self._turn = turn
        self._begun = asyncio.Event()
        self._answer: asyncio.Future[TraceFile] | None = None
        self._process: asyncio.subprocess.Process | None = None
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
        process = await started(self._command, stdin=asyncio.subprocess.PIPE)
        self._process = process
        assert process.stdout
        assert process.stderr
        said = asyncio.ensure_future(_tail(process.stderr))
        try:
            with suppress(asyncio.IncompleteReadError):
                await self._listen(process.stdout)
            code = await process.wait()
            if not self.left:
                self.failure = failure(code, await said)
                self.is_hopeless = code in _HOPELESS
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()  # its helper detaches the probes
                await process.wait()
            said.cancel()
            self.is_recording = False
            self._begun.set()
            if self._answer and not self._answer.done():
                self._answer.cancel()

    async def trace(self, format_name: str, last_s: float | None) -> TraceFile | None:
        """The last seconds until now: all that are kept, or so many; None if it has ended.

        Raises EbpfprofError if they can't be made into a trace.
        """
        await self._begun.wait()
        async with self._turn:
            if not self.is_recording or not self._process or not self._process.stdin:
                return None
            self._answer = asyncio.get_running_loop().create_future()
            request = {"format": format_name, "last_s": last_s}
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            await asyncio.wait([self._answer])
            return None if self._answer.cancelled() else self._answer.result()

    async def close(self) -> None:
        """Tell it to end, once its answer is there; if it does not, kill it."""
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._no_turn(), _ANSWER_S)
        self.is_recording = False
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()  # its helper detaches the probes

    async def _no_turn(self) -> None:
        async with self._turn:
            pass

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            message: dict[str, Any] = json.loads(line)
            data = await stream.readexactly(message.get("bytes", 0))
            file = TraceFile(data, tuple(message.get("comments", ())))
            self.lost_ns = max(self.lost_ns, message.get("lost_ns", 0.0))
            if "recording" in message:
                self.is_recording = True
                self._begun.set()
            elif "left" in message:
                self.left[message["left"]] = file
            elif "answer" in message and self._answer and not self._answer.done():
                if why := message.get("error"):
                    self._answer.set_exception(EbpfprofError(f"No trace was made. {why}"))
                else:
                    self._answer.set_result(file)


async def _tail(stream: asyncio.StreamReader) -> bytes:
    """The last bytes of a stream, once it has ended."""
    found = b""
    while part := await stream.read(_MOST_SAID):
        found = (found + part)[-_MOST_SAID:]
    return found
