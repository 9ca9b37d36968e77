"""What the page asks for, as JSON: targets, timelines, and profiles of a time that was."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import ebpfprof
from ebpfprof.console.output_file import default_name
from ebpfprof.console.text import printable
from ebpfprof.errors import EbpfprofError, TargetGone
from ebpfprof.export import json_profile, pprof
from ebpfprof.profile.delta import merged, totals
from ebpfprof.server.access import refused

if TYPE_CHECKING:
    from ebpfprof.continuous.follow import Discovery
    from ebpfprof.continuous.manager import Recorder
    from ebpfprof.continuous.process import Served
    from ebpfprof.discovery.processes import GoProcess
    from ebpfprof.profile.model import Profile

LEASE_S = 30.0
"""How long a process stays recorded after its timeline was asked for, in seconds."""
_LATEST_S = 60.0
_FRESH_S = 1.0  # no window is made shorter than that
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class _BadRequestError(Exception):
    """The message is a sentence for the user."""


class _NotFoundError(Exception):
    """The message is a sentence for the user."""


_Answer = Callable[[Request, "Served", str], Awaitable[Response]]


class PageApi:
    """The endpoints below /api/."""

    def __init__(self, recorder: Recorder, discovery: Discovery) -> None:
        self._recorder = recorder
        self._discovery = discovery

    async def targets(self, request: Request) -> Response:
        """All processes that are served, and those that can't be and why."""
        if not self._recorder.stopping.is_set():
            await self._discovery.look()
        recorder = self._recorder
        found = [self._described(each) for each in recorder.served]
        found += [_unserved(each) for each in self._discovery.unserved]
        body = {
            "version": ebpfprof.__version__,
            "interval_s": recorder.interval_s,
            "retention_s": recorder.retention_s,
            "targets": found,
        }
        return JSONResponse(body, headers=_HEADERS)

    async def timeline(self, request: Request) -> Response:
        """The windows of one process: how much was recorded in each. Keeps it recorded."""
        return await self._answered(request, self._timeline)

    async def profile(self, request: Request) -> Response:
        """The profile of a time, as JSON."""
        return await self._answered(request, self._profile)

    async def pprof(self, request: Request) -> Response:
        """The profile of a time, as a pprof file."""
        return await self._answered(request, self._pprof)

    async def _answered(self, request: Request, answer: _Answer) -> Response:
        try:
            served = self._recorder.find(request.path_params["pid"])
            if served is None:
                raise _NotFoundError(f"Process {request.path_params['pid']} is not served here.")
            kind = request.query_params.get("kind", "block")
            if kind not in served.kinds:
                kinds = ", ".join(served.kinds)
                raise _BadRequestError(f"There is no such profile of this process, only {kinds}.")
            return await answer(request, served, kind)
        except _BadRequestError as error:
            return refused(request.scope, 400, str(error))
        except (_NotFoundError, TargetGone) as error:
            return refused(request.scope, 404, printable(str(error)))
        except EbpfprofError as error:
            return refused(request.scope, 500, printable(str(error)))

    async def _timeline(self, request: Request, served: Served, kind: str) -> Response:
        problem, served.problem = served.problem, None
        self._recorder.lease(served, LEASE_S)
        if problem:
            return refused(request.scope, 500, problem)
        windows = []
        for window in served.windows.kept:
            sums = totals(window.profiles[kind]) if kind in window.profiles else [0, 0]
            windows.append(
                {
                    "start_s": window.start_s,
                    "end_s": window.end_s,
                    "count": sums[0],
                    "value_ns": sums[-1],
                }
            )
        body = {"kind": kind, "interval_s": self._recorder.interval_s, "windows": windows}
        return JSONResponse(body, headers=_HEADERS)

    async def _profile(self, request: Request, served: Served, kind: str) -> Response:
        profile = await self._of_time(request, served, kind)
        body = await asyncio.to_thread(json_profile.encode, profile)
        return Response(body, headers=_HEADERS, media_type="application/json")

    async def _pprof(self, request: Request, served: Served, kind: str) -> Response:
        profile = await self._of_time(request, served, kind)
        body = await asyncio.to_thread(pprof.encode, profile)
        when = time.localtime(profile.time_ns / 1e9)
        name = default_name(served.name, served.pid, kind, when)
        headers = {**_HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
        return Response(body, headers=headers, media_type="application/octet-stream")

    async def _of_time(self, request: Request, served: Served, kind: str) -> Profile:
        now_s = time.time()
        to_s = _seconds(request, "to", now_s)
        from_s = _seconds(request, "from", min(to_s, now_s) - _LATEST_S)
        if from_s >= to_s:
            raise _BadRequestError("from must be before to.")
        if to_s >= now_s:
            await self._recorder.end_window(served, at_least_s=_FRESH_S)
        found = served.windows.between(kind, from_s, to_s)
        if not found:
            raise _NotFoundError(
                f"Process {served.pid} was not recorded in that time"
                + (f": {served.ending}." if served.ending else " (yet).")
            )
        return await asyncio.to_thread(merged, found)

    def _described(self, served: Served) -> dict[str, Any]:
        about = served.about
        version = served.live.go_version if served.live else None
        return {
            "pid": served.pid,
            "name": served.name,
            "command": about.command if about else served.name,
            "go": version or (about.go_version if about else None),
            "container": about.container if about else None,
            "user": about.user if about else "",
            "supported": True,
            "why_not": "",
            "recording": served.is_recording,
            "kinds": list(served.kinds),
            "prefix": f"/proc/{served.pid}",
            "ended": served.ending,
        }


def _unserved(process: GoProcess) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "name": process.name,
        "command": process.command,
        "go": process.go_version,
        "container": process.container,
        "user": process.user,
        "supported": process.supported,
        "why_not": process.why_not or "there are too many processes to serve them all",
        "recording": False,
        "kinds": [],
        "prefix": f"/proc/{process.pid}",
        "ended": None,
    }


def _seconds(request: Request, name: str, default: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _BadRequestError(f"{name} must be Unix time in seconds.")
    return value
