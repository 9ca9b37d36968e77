"""/debug/pprof/trace: an execution trace of the next seconds, or of the last ones.

seconds=N records the next ones, as Go's own endpoint does. last=TIME, which Go does not know, gives
those that are kept (serve --last).
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from ebpfprof.console import quantities
from ebpfprof.console.output_file import default_name
from ebpfprof.console.text import printable
from ebpfprof.export.formats import FORMATS, TIMELINES
from ebpfprof.server.pprof_answers import BadParameterError, attachment, hang_up, parameter
from ebpfprof.server.served_child import ServedChild
from ebpfprof.server.trace_child import OTHER, TraceFile, not_recorded, trace_file

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.server.flight_recorders import FlightRecorders

NAME: Final = "trace"
DESCRIPTION: Final = (  # net/http/pprof, profileDescriptions
    "A trace of execution of the current program. You can specify the duration in the seconds GET "
    "parameter. After you get the trace file, use the go tool trace command to investigate the "
    "trace."
)
COMMENTS: Final = "X-Ebpfprof-Comments"
"""What is missing in a trace, as a list in JSON: Go's format has no place for it."""
_MOST_COMMENTS, _MOST_COMMENT = 20, 300
_LAST: Final = "last"
_SECONDS: Final = "seconds"
_USUAL_S: Final = 1.0
_MOST_S: Final = 3600.0
_MOST_CHARACTERS: Final = 64
_GO: Final = "go"
_MEDIA_TYPE: Final = "application/octet-stream"  # of all formats: no browser shows the file


class TraceEndpoint:
    """Answers for all processes of a manager. Next seconds are recorded one after the other."""

    def __init__(self, manager: Manager, recorders: FlightRecorders) -> None:
        """`recorders` have the last seconds, and the settings for the next ones."""
        self._manager, self._recorders = manager, recorders
        self._turn = asyncio.Lock()

    async def answer(self, request: Request, process: RecordedProcess) -> Response:
        """One request.

        Raises BadParameterError, NoLastSecondsError, TargetGone or another EbpfprofError.
        """
        form = _format_of(request)
        if is_about_the_last(request):
            return await self._last(request, process, form)
        seconds = seconds_of(request)
        headers = attachment(NAME if form == _GO else _file_name(process, form, time.time()))
        file = None
        if request.method != "HEAD":
            async with self._turn:
                file = await self._recorded(request, process, seconds, form)
        return _answered(file, headers)

    async def _last(self, request: Request, process: RecordedProcess, form: str) -> Response:
        last_s = last_of(request)
        if request.method == "HEAD":
            if not self._recorders.state(process)[0]:
                raise self._recorders.refusal(process)
            return _answered(None, attachment(_file_name(process, form, time.time())))
        seconds = await self._recorders.trace(process, form, last_s)
        return _answered(seconds.file, attachment(_file_name(process, form, seconds.end_s)))

    async def _recorded(
        self, request: Request, process: RecordedProcess, seconds: float, form: str
    ) -> TraceFile | None:
        """The trace; None if the client hung up."""
        settings = self._recorders.settings
        request_of_it = settings.request(process.pid, duration_s=seconds, format_name=form)
        child = await ServedChild.start(settings.command(), request_of_it, OTHER)
        answer = asyncio.ensure_future(_answer_of(child))
        try:
            # It takes a while to begin, and to find names: its own end is what counts.
            waits = asyncio.ensure_future(self._manager.wait(process, math.inf, hang_up(request)))
            await asyncio.wait([answer, waits], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                if not waits.result():
                    return None
                child.send("end")  # it sends what there is
            waits.cancel()
            return await answer
        finally:
            await child.close()
            await asyncio.gather(answer, return_exceptions=True)


async def _answer_of(child: ServedChild) -> TraceFile:
    """The trace that it records. Raises TargetGone or AttachFailed if there is none."""
    file = None
    async for message, data in child.frames():
        match message:
            case {"answer": answer}:
                file = trace_file(answer, data)
    await child.wait()
    if file is None:
        raise not_recorded(child.error)
    return file


def is_about_the_last(request: Request) -> bool:
    """Whether a request wants last seconds: of a process that ended, too."""
    return _LAST in request.query_params


def seconds_of(request: Request) -> float:
    """How long to record: what cannot be a duration is 1 s, as in Go (net/http/pprof, Trace)."""
    try:
        seconds = float(parameter(request, _SECONDS))
    except ValueError:
        return _USUAL_S
    return min(seconds, _MOST_S) if seconds > 0 else _USUAL_S


def last_of(request: Request) -> float | None:
    """How many of the last seconds are wanted; None: all that are kept.

    Raises BadParameterError for what is no length of time, or with `seconds`.
    """
    if _SECONDS in request.query_params:
        raise BadParameterError("last and seconds params are incompatible")
    text = parameter(request, _LAST)
    if not text:
        return None
    last_s = quantities.seconds_of(text) if len(text) <= _MOST_CHARACTERS else None
    if last_s is None or last_s <= 0:
        raise BadParameterError(
            f"invalid value for '{_LAST}': '{printable(text[:_MOST_CHARACTERS])}' is no length of "
            "time such as 10s, 1m30s or 500ms"
        )
    return last_s


def _answered(file: TraceFile | None, headers: dict[str, str]) -> Response:
    """The file; the headers alone if there is none, since only they are wanted."""
    if file is None:
        return Response(None, 200, headers, _MEDIA_TYPE)
    comments = [printable(comment)[:_MOST_COMMENT] for comment in file.comments[:_MOST_COMMENTS]]
    return Response(
        file.data,
        200,
        {**headers, COMMENTS: json.dumps(comments)} if comments else headers,
        _MEDIA_TYPE,
    )


def _format_of(request: Request) -> str:
    """The format that is asked for. Raises BadParameterError."""
    name = parameter(request, "format") or _GO
    if name not in TIMELINES:
        shown = printable(name[:_MOST_CHARACTERS])
        raise BadParameterError(f"The format must be one of {', '.join(TIMELINES)}, not '{shown}'.")
    return name


def _file_name(process: RecordedProcess, form: str, end_s: float) -> str:
    ending = FORMATS[form].timeline_ending
    return default_name(process.name, process.pid, ending, time.localtime(end_s), "")
