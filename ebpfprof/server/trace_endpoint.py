"""/debug/pprof/trace: an execution trace of the next seconds, as Go's own endpoint gives it.

Another ebpfprof records it, in a process of its own: a trace takes much memory for a moment, and
looking up its names much time, which other requests would wait for.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from ebpfprof.errors import AttachFailed, EbpfprofError, ExitCode, TargetGone
from ebpfprof.server.pprof_answers import attachment, hang_up, parameter

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess

NAME: Final = "trace"
DESCRIPTION: Final = (  # net/http/pprof, profileDescriptions
    "A trace of execution of the current program. You can specify the duration in the seconds GET "
    "parameter. After you get the trace file, use the go tool trace command to investigate the "
    "trace."
)
_USUAL_S: Final = 1.0
_MOST_S: Final = 3600.0
_GONE: Final = (ExitCode.TARGET_GONE, ExitCode.NO_SUCH_PROCESS)
_SAID_BY: Final = "ebpfprof: "


class TraceEndpoint:
    """Answers for all processes of a manager, one after the other."""

    def __init__(self, manager: Manager, *, max_overhead: float) -> None:
        """`max_overhead`: how much of its CPU time a process may lose, in percent; 0: no bound."""
        self._manager, self._max_overhead = manager, max_overhead
        self._turn = asyncio.Lock()

    async def answer(self, request: Request, process: RecordedProcess) -> Response:
        """One request. Raises TargetGone or AttachFailed."""
        headers, media_type = attachment(NAME), "application/octet-stream"
        body = None
        if request.method != "HEAD":
            async with self._turn:
                body = await self._recorded(request, process, seconds_of(request))
        return Response(body, 200, headers, media_type)

    async def _recorded(
        self, request: Request, process: RecordedProcess, seconds: float
    ) -> bytes | None:
        """The trace; None if the client hung up."""
        recording = await asyncio.create_subprocess_exec(
            *_command(process.pid, seconds, self._max_overhead),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        answer = asyncio.ensure_future(recording.communicate())
        try:
            # It takes a while to begin, and to look up names: its own end is what counts.
            waits = asyncio.ensure_future(self._manager.wait(process, math.inf, hang_up(request)))
            await asyncio.wait([answer, waits], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                with suppress(ProcessLookupError):
                    recording.send_signal(signal.SIGTERM)  # it writes what there is
                if not waits.result():
                    return None
            waits.cancel()
            trace, said = await answer
        finally:
            if recording.returncode is None:
                with suppress(ProcessLookupError):
                    recording.kill()  # its helper detaches the probes
            await asyncio.gather(answer, return_exceptions=True)
        if recording.returncode:
            raise _failure(recording.returncode, said)
        return trace


def seconds_of(request: Request) -> float:
    """How long to record: what cannot be a duration is 1 s, as in Go (net/http/pprof, Trace)."""
    try:
        seconds = float(parameter(request, "seconds"))
    except ValueError:
        return _USUAL_S
    return min(seconds, _MOST_S) if seconds > 0 else _USUAL_S


def _command(pid: int, seconds: float, max_overhead: float) -> list[str]:
    isolated = ["-I"] if sys.flags.isolated else []
    return [
        *(sys.executable, *isolated, "-m", "ebpfprof", "trace", "--pid", str(pid)),
        *("--duration", f"{seconds:.3f}", "--max-overhead", f"{max_overhead:g}"),
        *("--format", "go", "--output", "-", "--quiet"),
    ]


def _failure(code: int, said: bytes) -> EbpfprofError:
    lines = said.decode(errors="replace").strip().splitlines()
    why = lines[-1].removeprefix(_SAID_BY) if lines else f"It ended with status {code}."
    return TargetGone(why) if code in _GONE else AttachFailed(f"No trace was recorded. {why}")
