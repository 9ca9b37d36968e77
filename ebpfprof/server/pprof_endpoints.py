"""The endpoints of net/http/pprof, for a process that has none: /debug/pprof/ and below.

As Go 1.27 answers (net/http/pprof/pprof.go): parameters, headers, codes and words of errors. What
differs, since nothing is recorded before a request comes:
- A profile of sums without `seconds`, such as block, holds what was recorded since the process was
  first recorded here. The process is recorded for FIRST_S seconds before the answer, unless it has
  been so long already, and for LEASE_S after it: so regular requests, like a scraper's, miss
  nothing.
- When the process ends, or the server is asked to end, waiting requests are answered with what was
  recorded until then, and the profile says how long that was.
"""

from __future__ import annotations

import asyncio
import functools
import html
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from ebpfprof.console.text import in_one_line, printable
from ebpfprof.errors import EbpfprofError, NoSuchProcess, TargetGone, UnsupportedTarget
from ebpfprof.export import folded
from ebpfprof.profile.lock_labels import LOCK, without_locks
from ebpfprof.profilers.registry import find_kind, kinds
from ebpfprof.server import pprof_text, trace_endpoint
from ebpfprof.server.flight_recorders import FlightRecorders, NoLastSecondsError
from ebpfprof.server.go_forms import parse_int
from ebpfprof.server.pprof_answers import (
    NOSNIFF,
    TEXT,
    BadParameterError,
    attachment,
    debug_and_seconds,
    error,
    file,
    hang_up,
    parameter,
    process_of,
)
from ebpfprof.server.read_endpoint import ReadEndpoint, is_go, is_read
from ebpfprof.server.symbol_endpoint import symbol
from ebpfprof.server.symbols import symbols_of

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcesses
    from ebpfprof.profile.kind import Endpoint, ProfileKind
    from ebpfprof.profile.model import Profile

FIRST_S = 5.0
"""How long a process is recorded, at least, before its sums are answered."""
LEASE_S = 120.0
"""How long it is recorded after a request for its sums, in seconds."""
WALL = "wall"
"""The endpoint of the wall profile."""
_FOLDED = "folded"
_MAX_CMDLINE = 1 << 22

# Those of Go 1.27 that are unknown here, unless a kind of profile has such an endpoint.
_GOS_OWN = frozenset({"goroutineleak"})
# net/http/pprof, profileDescriptions: those of endpoints that are no profiles.
_DESCRIPTIONS = {
    "cmdline": "The command line invocation of the current program",
    "symbol": "Maps given program counters to function names. Counters can be specified in a GET "
    "raw query or POST body, multiple counters are separated by '+'.",
    trace_endpoint.NAME: trace_endpoint.DESCRIPTION,
}


def endpoint_names() -> set[str]:
    """The names behind /debug/pprof/ that there are, of all kinds of profiles."""
    endpoints = [kind.endpoint for kind in kinds() if kind.endpoint]
    named = {name for endpoint in endpoints for name in (endpoint.name, endpoint.delta) if name}
    return {*_DESCRIPTIONS, *named}


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for a profile of a process."""

    request: Request
    process: RecordedProcess
    kind: ProfileKind
    endpoint: Endpoint

    @property
    def is_of_sums(self) -> bool:
        return _is_of_sums(self.endpoint)


class PprofEndpoints:
    """Answers for all processes of a manager."""

    def __init__(
        self,
        manager: Manager,
        recorders: FlightRecorders,
        reads: ReadEndpoint,
        processes: OpenProcesses,
        *,
        lock_labels: bool = False,
    ) -> None:
        """With `lock_labels`, samples have labels of locks also where no request asks for them.

        `recorders` are for traces.
        """
        self._manager = manager
        self._trace = trace_endpoint.TraceEndpoint(manager, recorders)
        self._lock_labels = lock_labels
        self._read = reads
        self._processes = processes

    async def __call__(self, request: Request) -> Response:
        """One request. `name` of the path is what stands behind /debug/pprof/."""
        try:
            process = process_of(self._manager, request.path_params.get("pid"))
            name = request.path_params["name"]
            if not (name == trace_endpoint.NAME and trace_endpoint.is_about_the_last(request)):
                _require_running(process)
            return await self._answer(request, process, name)
        except BadParameterError as refusal:
            return error(request, 400, str(refusal))
        except NoLastSecondsError as refusal:
            return error(request, refusal.status, printable(in_one_line(str(refusal))))
        except (TargetGone, NoSuchProcess, UnsupportedTarget) as refusal:
            return error(request, 404, printable(in_one_line(str(refusal))))
        except EbpfprofError as refusal:
            return error(request, 500, printable(in_one_line(str(refusal))))

    async def fgprof(self, request: Request) -> Response:
        """The wall profile where clients of the package fgprof expect it: /debug/fgprof.

        It takes the parameters of that package: `seconds`, and `format` (pprof or folded).
        """
        form = parameter(request, "format")
        if form not in ("", "pprof", _FOLDED):
            sentence = f"The format {printable(form)!r} is not known: ask for pprof or folded."
            return error(request, 400, sentence)
        request.path_params["name"] = WALL
        return await self(request)

    async def redirect(self, request: Request) -> Response:
        """Add the slash, as Go's ServeMux does."""
        query = request.url.query
        return RedirectResponse(
            request.url.path + "/" + (f"?{query}" if query else ""), 307, NOSNIFF
        )

    async def _answer(self, request: Request, process: RecordedProcess, name: str) -> Response:
        methods = ("GET", "HEAD", "POST") if name == "symbol" else ("GET", "HEAD")
        if request.method not in methods:
            allow = {"Allow": ", ".join(methods)}
            return PlainTextResponse("Method Not Allowed\n", 405, {**NOSNIFF, **allow})
        match name:
            case "":
                return await self._index(process)
            case "cmdline":
                return await _cmdline(process)
            case "symbol":
                return await symbol(request, process, self._processes)
            case trace_endpoint.NAME if is_go(process):
                return await self._trace.answer(request, process)
        for kind, endpoint in _endpoints(process):
            asked = _Asked(request, process, kind, endpoint)
            if endpoint.reader and name and name in (endpoint.name, endpoint.delta):
                is_delta = name == endpoint.delta
                read = self._read.since_last if is_delta else self._read.answer
                try:
                    return await read(request, process, kind, endpoint)
                except UnsupportedTarget:
                    if kind.name not in process.kinds:
                        raise
                    # Nothing to read, but it is recorded.
                    return await (self._since_last(asked) if is_delta else self._sums(asked))
            if name == endpoint.name:
                return await (self._sums(asked) if asked.is_of_sums else self._timed(asked))
            if name and name == endpoint.delta:
                return await self._since_last(asked)
        return error(request, 404, _unknown(process, name))

    async def _timed(self, asked: _Asked) -> Response:
        """What is recorded in the next seconds, as Go's endpoint `profile`."""
        seconds, is_number = parse_int(parameter(asked.request, "seconds"))
        if seconds <= 0 or not is_number:
            seconds = asked.endpoint.seconds or 0
        headers = attachment(asked.endpoint.name)
        start_ns = time.time_ns()
        profile = await self._scraped(asked, await self._recorded(asked, seconds))
        if asked.endpoint.name == WALL and parameter(asked.request, "format") == _FOLDED:
            body = await asyncio.to_thread(folded.encode, profile) if profile else None
            return Response(body, 200, NOSNIFF, TEXT)
        # Go's CPU profile has the time of its beginning, all others that of their end.
        return await file(profile and replace(profile, time_ns=start_ns), headers)

    async def _sums(self, asked: _Asked) -> Response:
        """The sums so far, or with `seconds` what is recorded from now on, as Go's others."""
        debug, seconds = debug_and_seconds(asked.request)
        if seconds is not None:
            profile = await self._scraped(asked, await self._recorded(asked, seconds))
            ended = profile and replace(profile, time_ns=time.time_ns())
            return await file(ended, attachment(f"{asked.endpoint.name}-delta"))
        is_text = debug != 0 and bool(asked.endpoint.text)
        headers = NOSNIFF if is_text else attachment(asked.endpoint.name)
        so_far = await self._so_far(asked, self._manager.readings.snapshot)
        profile = await self._scraped(asked, so_far)
        if not is_text:
            # As Go's, which has no duration where it holds all since the start.
            ended = profile and replace(profile, time_ns=time.time_ns(), duration_ns=0)
            return await file(ended, headers)
        if profile is None:
            return Response(None, 200, headers, TEXT)
        pid, head = asked.process.pid, asked.endpoint.text
        body = await asyncio.to_thread(_text_of, self._processes, pid, profile, head)
        return Response(body, 200, headers, TEXT)

    async def _since_last(self, asked: _Asked) -> Response:
        """What was recorded since the last request for this, by any client (godeltaprof)."""
        last = await self._so_far(asked, self._manager.readings.since_last)
        since = await self._scraped(asked, last)
        ended = since and replace(since, time_ns=time.time_ns())
        return await file(ended, attachment(f"{asked.endpoint.name}.pprof.gz"))

    async def _scraped(self, asked: _Asked, profile: Profile | None) -> Profile | None:
        """The profile without labels of locks, unless the request has ?labels=lock.

        Addresses of locks are others in each process: in a store of profiles that would be a new
        series for each lock.
        """
        is_asked = parameter(asked.request, "labels") == LOCK
        if profile is None or self._lock_labels or is_asked:
            return profile
        return await asyncio.to_thread(without_locks, profile)

    async def _recorded(self, asked: _Asked, seconds: int) -> Profile | None:
        """What is recorded from now on; None if the client does not wait for it."""
        if asked.request.method == "HEAD":
            return None
        manager, process = self._manager, asked.process
        async with manager.leases.recording(process):
            since = await manager.readings.begin(process, asked.kind.name)
            if not await manager.wait(process, seconds, hang_up(asked.request)):
                return None
            return await since()

    async def _so_far(
        self, asked: _Asked, read: Callable[[RecordedProcess, str], Awaitable[Profile]]
    ) -> Profile | None:
        """What `read` gives once there are sums; None if the client does not wait for them."""
        if asked.request.method == "HEAD":
            return None
        manager, process = self._manager, asked.process
        async with manager.leases.recording(process):
            manager.leases.lease(process, LEASE_S)
            missing_s = FIRST_S - (time.monotonic() - process.since_s)
            is_early = missing_s > 0 and not asked.kind.is_moment
            if is_early and not await manager.wait(process, missing_s, hang_up(asked.request)):
                return None
            return await read(process, asked.kind.name)

    async def _index(self, process: RecordedProcess) -> Response:
        descriptions: dict[str, str] = _described(process)
        counts, of_sums = dict.fromkeys(descriptions, 0), []
        for kind, endpoint in _endpoints(process):
            known = process.history.sums.get(kind.name)
            stacks = await asyncio.to_thread(without_locks, known) if known else None
            counts[endpoint.name] = len(stacks.samples) if stacks else 0
            if endpoint.reader:
                counts[endpoint.name] = await self._read.count(process, endpoint)
            descriptions[endpoint.name] = endpoint.description
            if _is_of_sums(endpoint) and not kind.is_moment:
                of_sums.append(endpoint.name)
        names = sorted(descriptions)
        rows = "".join(
            f"<tr><td>{counts[name]}</td><td><a href='{name}?debug=1'>{name}</a></td></tr>\n"
            for name in names
        )
        items = "".join(
            f"<li><div class=profile-name>{name}: </div> {html.escape(descriptions[name])}</li>\n"
            for name in names
        )
        page = _INDEX.format(
            process=html.escape(f"Process {process.pid} ({process.name})"),
            rows=rows,
            descriptions=items,
            sums=_SUMS.format(names=", ".join(of_sums)) if of_sums else "",
        )
        return HTMLResponse(page, headers=NOSNIFF)


def _endpoints(process: RecordedProcess) -> list[tuple[ProfileKind, Endpoint]]:
    """The profiles of a process that have an endpoint: recorded ones, and those read on request."""
    endpoints = [find_kind(name) for name in process.kinds]
    others = [kind for kind in kinds() if is_go(process) and kind.name not in process.kinds]
    return [
        *((kind, kind.endpoint) for kind in endpoints if kind and kind.endpoint),
        *((kind, kind.endpoint) for kind in others if kind.endpoint and is_read(kind)),
    ]


def _require_running(process: RecordedProcess) -> None:
    if process.ending is not None:
        raise TargetGone(f"{process.ending[:1].upper()}{process.ending[1:]}.")


def _described(process: RecordedProcess) -> dict[str, str]:
    """The endpoints of a process that are no profiles."""
    is_there = {trace_endpoint.NAME: is_go(process)}
    return {name: text for name, text in _DESCRIPTIONS.items() if is_there.get(name, True)}


def _unknown(process: RecordedProcess, name: str) -> str:
    """Go's words, and what there is: `go tool pprof` prints it."""
    known = sorted({*_described(process), *(kind.name for _, kind in _endpoints(process))})
    why = ""
    if name == trace_endpoint.NAME:
        why = "Only Go programs can be traced, and this process is not one. "
    elif name in endpoint_names():
        why = f"{name} is not recorded for this process: choose profiles with serve --profile. "
    elif name in _GOS_OWN:
        why = f"ebpfprof can't record {name}. "
    return f"Unknown profile. {why}Process {process.pid} has {', '.join(known)}."


def _is_of_sums(endpoint: Endpoint) -> bool:
    """Whether a request without `seconds` gets the sums so far."""
    return endpoint.seconds is None


async def _cmdline(process: RecordedProcess) -> Response:
    def read() -> bytes:
        try:
            with open(f"/proc/{process.pid}/cmdline", "rb") as file:
                return file.read(_MAX_CMDLINE)
        except OSError as error:
            raise TargetGone(f"Process {process.pid} ended.") from error

    body = (await asyncio.to_thread(read)).removesuffix(b"\0")
    return Response(body, 200, NOSNIFF, TEXT)


def _text_of(processes: OpenProcesses, pid: int, profile: Profile, head: tuple[str, ...]) -> str:
    with symbols_of(processes, pid) as symbols:
        offset_of = functools.cache(symbols.offset)
        return pprof_text.text(profile, head, offset_of, symbols.type_argument_lists)


_INDEX = """<html>
<head>
<title>/debug/pprof/</title>
<style>
.profile-name{{
	display:inline-block;
	width:6rem;
}}
</style>
</head>
<body>
/debug/pprof/
<br>
<p>Set debug=1 as a query parameter to export in legacy text format</p>
<br>
Types of profiles available:
<table>
<thead><td>Count</td><td>Profile</td></thead>
{rows}</table>
<br>
<p>
Profile Descriptions:
<ul>
{descriptions}</ul>
</p>
<p>{process}, profiled from outside by ebpfprof. With seconds=N, what happens in the next N seconds.
{sums}The process is recorded while a request waits, or all the time with --continuous. Goroutines,
threads and the memory profile are read when they are asked for, and need no recording.</p>
</body>
</html>"""
_SUMS = f"""Without ({{names}}), all that happened while this server recorded the process: at least
in the {FIRST_S:g} s before the answer. It continues recording for {LEASE_S:g} s after it.
"""
