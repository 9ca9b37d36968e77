"""The endpoints of net/http/pprof, for a process that has none: /debug/pprof/ and below.

As Go 1.27 answers (net/http/pprof/pprof.go): parameters, headers, codes and words of errors. What
differs, since nothing is recorded before somebody asks:
- Without `seconds`, block and mutex are the sums since the process was first recorded here. It is
  recorded for FIRST_S seconds before they are answered, unless it has been so long already, and
  for LEASE_S after: so whoever comes again soon, like a scraper, misses nothing.
- A process that goes, or a server that is told to end, ends the waiting: what was recorded until
  then is answered, and the profile says how long that was.
"""

from __future__ import annotations

import asyncio
import functools
import html
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from ebpfprof.console.text import printable
from ebpfprof.errors import EbpfprofError, NoSuchProcess, TargetGone
from ebpfprof.export import pprof
from ebpfprof.profile.delta import difference
from ebpfprof.server import pprof_text
from ebpfprof.server.access import refused
from ebpfprof.server.go_forms import form_value, parse_address, parse_int
from ebpfprof.server.symbols import Symbols

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Recorder
    from ebpfprof.continuous.process import Served
    from ebpfprof.profile.model import Profile

FIRST_S = 5.0
"""How long a process is recorded, at least, before its sums are answered."""
LEASE_S = 120.0
"""How long it is recorded after its sums were asked for, in seconds."""
_CPU_SECONDS = 30
_MAX_BODY = 1 << 20
_BODY_S = 30.0  # how long that may take to come
_MAX_NAMES = 1 << 26  # bytes; each address may come again and again, and its name may be long
_MAX_WORD = 4096  # bufio's buffer, in Go's Symbol
_MAX_CMDLINE = 1 << 22

_UNKNOWN = "Unknown profile"
_NOSNIFF = {"X-Content-Type-Options": "nosniff"}
_DELTAS = {"delta_block": "block", "delta_mutex": "mutex"}
_KINDS = {"block": "block", "mutex": "mutex", "profile": "cpu", **_DELTAS}
# net/http/pprof, profileDescriptions, with ours.
_DESCRIPTIONS = {
    "block": "Stack traces that led to blocking on synchronization primitives",
    "cmdline": "The command line invocation of the current program",
    "mutex": "Stack traces of holders of contended mutexes",
    "profile": "CPU profile. You can specify the duration in the seconds GET parameter. After you "
    "get the profile file, use the go tool pprof command to investigate the profile.",
    "symbol": "Maps given program counters to function names. Counters can be specified in a GET "
    "raw query or POST body, multiple counters are separated by '+'.",
}


class GoPprof:
    """Answers for all processes that are served."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def __call__(self, request: Request) -> Response:
        """One request. `name` of the path is what stands behind /debug/pprof/."""
        try:
            served = self._find(request.path_params.get("pid"))
            return await self._answer(request, served, request.path_params["name"])
        except (TargetGone, NoSuchProcess) as error:
            return _error(request, 404, printable(str(error)))
        except EbpfprofError as error:
            return _error(request, 500, printable(str(error)))

    async def redirect(self, request: Request) -> Response:
        """Add the slash, as Go's ServeMux does."""
        query = request.url.query
        return RedirectResponse(
            request.url.path + "/" + (f"?{query}" if query else ""), 307, _NOSNIFF
        )

    def _find(self, pid: int | None) -> Served:
        recorder = self._recorder
        if pid is not None:
            served = recorder.find(pid)
            if served is None:
                raise NoSuchProcess(f"Process {pid} is not served here: / shows those that are.")
        else:
            running = [each for each in recorder.served if each.ending is None]
            candidates = running or recorder.served
            if len(candidates) != 1:
                raise NoSuchProcess(
                    f"{len(candidates)} processes are served here: say which one, with its number "
                    "in the address, as in /proc/PID/debug/pprof/block. / shows them."
                )
            served = candidates[0]
        if served.ending is not None:
            raise TargetGone(f"{served.ending[:1].upper()}{served.ending[1:]}.")
        return served

    async def _answer(self, request: Request, served: Served, name: str) -> Response:
        methods = ("GET", "HEAD", "POST") if name == "symbol" else ("GET", "HEAD")
        if request.method not in methods:
            allow = {"Allow": ", ".join(methods)}
            return PlainTextResponse("Method Not Allowed\n", 405, {**_NOSNIFF, **allow})
        match name:
            case "":
                return self._index(served)
            case "cmdline":
                return await _cmdline(served)
            case "symbol":
                return await _symbol(request, served)
        kind = _KINDS.get(name)
        if kind is None or kind not in served.kinds:
            return _error(request, 404, _UNKNOWN)
        if name == "profile":
            return await self._cpu(request, served)
        if name in _DELTAS:
            return await self._since_last(request, served, kind)
        seconds = form_value(_query(request), "seconds")
        if seconds:
            return await self._delta(request, served, kind, seconds)
        debug, _ = parse_int(form_value(_query(request), "debug"))
        return await self._sums(request, served, kind, is_text=debug != 0)

    async def _cpu(self, request: Request, served: Served) -> Response:
        seconds, is_number = parse_int(form_value(_query(request), "seconds"))
        if seconds <= 0 or not is_number:
            seconds = _CPU_SECONDS
        headers = _attachment("profile")
        start_ns = time.time_ns()
        profile = await self._recorded(request, served, "cpu", seconds)
        # Go's CPU profile has the time of its beginning, all others that of their end.
        return await _file(profile and replace(profile, time_ns=start_ns), headers)

    async def _delta(self, request: Request, served: Served, kind: str, text: str) -> Response:
        seconds, is_number = parse_int(text)
        if seconds <= 0 or not is_number:
            return _error(request, 400, 'invalid value for "seconds" - must be a positive integer')
        debug, _ = parse_int(form_value(_query(request), "debug"))
        if debug != 0:
            return _error(request, 400, "seconds and debug params are incompatible")
        profile = await self._recorded(request, served, kind, seconds)
        ended = profile and replace(profile, time_ns=time.time_ns())
        return await _file(ended, _attachment(f"{kind}-delta"))

    async def _sums(
        self, request: Request, served: Served, kind: str, *, is_text: bool
    ) -> Response:
        headers = _NOSNIFF if is_text else _attachment(kind)
        media_type = "text/plain; charset=utf-8" if is_text else "application/octet-stream"
        profile = await self._all_so_far(request, served, kind)
        if profile is None:
            return Response(None, 200, headers, media_type)
        if not is_text:
            # As Go's, which has no duration where it holds all since the start.
            return await _file(replace(profile, time_ns=time.time_ns(), duration_ns=0), headers)
        body = await asyncio.to_thread(_text_of, served.pid, profile)
        return Response(body, 200, headers, media_type)

    async def _since_last(self, request: Request, served: Served, kind: str) -> Response:
        """What came since this was asked for last, by whomever (godeltaprof's endpoints)."""
        headers = _attachment(f"{kind}.pprof.gz")
        profile = await self._all_so_far(request, served, kind)
        if profile is None:
            return await _file(None, headers)
        last = served.last_sent.get(kind)
        served.last_sent[kind] = profile
        since = await asyncio.to_thread(difference, profile, last) if last else profile
        return await _file(replace(since, time_ns=time.time_ns()), headers)

    async def _recorded(
        self, request: Request, served: Served, kind: str, seconds: int
    ) -> Profile | None:
        """What happens from now on; None if nobody waits for it."""
        if request.method == "HEAD":
            return None
        recorder = self._recorder
        async with recorder.recording(served):
            since = await recorder.begin(served, kind)
            if not await recorder.wait(served, seconds, _left(request)):
                return None
            return await since()

    async def _all_so_far(self, request: Request, served: Served, kind: str) -> Profile | None:
        """The sums since the process was first recorded; None if nobody waits for them."""
        if request.method == "HEAD":
            return None
        recorder = self._recorder
        async with recorder.recording(served):
            recorder.lease(served, LEASE_S)
            missing_s = FIRST_S - (time.monotonic() - served.since_s)
            if missing_s > 0 and not await recorder.wait(served, missing_s, _left(request)):
                return None
            return await recorder.snapshot(served, kind)

    def _index(self, served: Served) -> Response:
        counts = {kind: len(profile.samples) for kind, profile in served.windows.sums.items()}
        names = [
            name
            for name in sorted(_DESCRIPTIONS)
            if name not in _KINDS or _KINDS[name] in served.kinds
        ]
        rows = "".join(
            f"<tr><td>{counts.get(name, 0)}</td><td><a href='{name}?debug=1'>{name}</a></td></tr>\n"
            for name in names
        )
        descriptions = "".join(
            f"<li><div class=profile-name>{name}: </div> {html.escape(_DESCRIPTIONS[name])}</li>\n"
            for name in names
        )
        who = html.escape(f"Process {served.pid} ({served.name})")
        page = _INDEX.format(who=who, rows=rows, descriptions=descriptions)
        return HTMLResponse(page, headers=_NOSNIFF)


async def _cmdline(served: Served) -> Response:
    def read() -> bytes:
        try:
            with open(f"/proc/{served.pid}/cmdline", "rb") as file:
                return file.read(_MAX_CMDLINE)
        except OSError as error:
            raise TargetGone(f"Process {served.pid} ended.") from error

    body = (await asyncio.to_thread(read)).removesuffix(b"\0")
    return Response(body, 200, _NOSNIFF, "text/plain; charset=utf-8")


async def _symbol(request: Request, served: Served) -> Response:
    words = _query(request)
    if request.method == "POST":
        try:
            words = await asyncio.wait_for(_body(request), _BODY_S)
        except TimeoutError:
            return _error(request, 408, f"The addresses did not come within {_BODY_S:g} s.")
        if len(words) > _MAX_BODY:
            return _error(request, 413, f"More than {_MAX_BODY} bytes of addresses.")
    body = await asyncio.to_thread(_symbol_table, served.pid, words)
    if len(body) > _MAX_NAMES:
        sentence = f"The names of these addresses take more than {_MAX_NAMES} bytes: ask for fewer."
        return _error(request, 413, sentence)
    return Response(body, 200, _NOSNIFF, "text/plain; charset=utf-8")


async def _body(request: Request) -> bytes:
    """What was sent; of more than _MAX_BODY bytes so much that it is seen to be too much."""
    found = b""
    async for chunk in request.stream():
        found += chunk
        if len(found) > _MAX_BODY:
            break
    return found


def _symbol_table(pid: int, query: bytes) -> bytes:
    """What Go's Symbol answers: a line for each address behind which there is a function.

    Of an answer longer than _MAX_NAMES bytes only the beginning, a little longer than that.
    """
    found, size, end = [b"num_symbols: 1"], 0, b""  # to clients it matters that it isn't 0
    words = query.decode("latin-1").split("+")
    cut = next((index for index, word in enumerate(words) if len(word) >= _MAX_WORD), None)
    if cut is not None:
        words, end = words[: cut + 1], b"reading request: bufio: buffer full\n"
    pcs = [parse_address(word[:_MAX_WORD]) for word in words]
    with Symbols(pid) as symbols:
        names = symbols.names({pc for pc in pcs if pc})
    lines = {pc: f"{pc:#x} {printable(name)}".encode() for pc, name in names.items()}
    for pc in pcs:
        if pc in lines and size <= _MAX_NAMES:
            found.append(lines[pc])
            size += len(lines[pc])
    return b"\n".join([*found, end])


def _text_of(pid: int, profile: Profile) -> str:
    with Symbols(pid) as symbols:
        return pprof_text.text(profile, functools.cache(symbols.offset))


async def _file(profile: Profile | None, headers: dict[str, str]) -> Response:
    """The profile as a file; the headers alone if there is none, since only they are wanted."""
    body = await asyncio.to_thread(pprof.encode, profile) if profile else None
    return Response(body, 200, headers, "application/octet-stream")


def _left(request: Request) -> Callable[[], Awaitable[None]]:
    """A function that waits until the client has hung up."""

    async def until_left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return until_left


def _query(request: Request) -> bytes:
    query: bytes = request.scope["query_string"]
    return query


def _attachment(name: str) -> dict[str, str]:
    return {**_NOSNIFF, "Content-Disposition": f'attachment; filename="{name}"'}


def _error(request: Request, status: int, sentence: str) -> Response:
    return refused(request.scope, status, sentence)


_INDEX = (
    """<html>
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
<p>{who}, seen from outside by ebpfprof. With seconds=N, what happens in the next N seconds.
Without, block and mutex hold all that happened while the process was recorded by this server.
It is recorded while somebody asks, """
    f"""for {FIRST_S:g} s before such sums are answered and for {LEASE_S:g} s after, or
all the time with --continuous.</p>
</body>
</html>"""
)
