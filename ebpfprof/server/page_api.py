"""The data of the page, as JSON: processes, their timelines, and profiles of a time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import ebpfprof
from ebpfprof.console.output_file import default_name
from ebpfprof.console.text import in_one_line, printable
from ebpfprof.continuous.readings import NotRecordedError
from ebpfprof.errors import EbpfprofError, NoSuchProcess, TargetGone, UnsupportedTarget
from ebpfprof.export import json_profile, pprof
from ebpfprof.profile.delta import totals
from ebpfprof.profile.handlers import of_handler
from ebpfprof.profilers.registry import kind_named, kind_with_option, kinds
from ebpfprof.server import findings, states
from ebpfprof.server.explanations import asked_seconds
from ebpfprof.server.growths import Growths
from ebpfprof.server.pprof_answers import BadParameterError
from ebpfprof.server.read_endpoint import ReadEndpoint, is_go, is_read
from ebpfprof.server.refusals import refused
from ebpfprof.server.served_usage import ServedUsage

if TYPE_CHECKING:
    from ebpfprof.continuous.follow import Follower
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.discovery.processes import GoProcess
    from ebpfprof.discovery.usage import Usage
    from ebpfprof.profile.kind import ProfileKind
    from ebpfprof.profile.model import Profile
    from ebpfprof.server.explanations import Explanations
    from ebpfprof.server.flight_recorders import FlightRecorders
    from ebpfprof.server.references import ServedReferences
    from ebpfprof.server.series import ProcessSeries
    from ebpfprof.server.watches import GoroutineWatches

LEASE_S = 30.0
"""How long a process is recorded after a request for its timeline, in seconds."""
_LATEST_S = 60.0
FRESH_S = 1.0  # so old may be what the present window has
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class _BadRequestError(Exception):
    """The message is a sentence for the user."""


class _NotFoundError(Exception):
    """The message is a sentence for the user."""


_NOT_FOUND = (_NotFoundError, NotRecordedError, NoSuchProcess, TargetGone, UnsupportedTarget)
_Answer = Callable[[Request, "RecordedProcess", str], Awaitable[Response]]


class PageApi:
    """The endpoints below /api/."""

    def __init__(
        self,
        manager: Manager,
        follower: Follower,
        watches: GoroutineWatches,
        recorders: FlightRecorders,
        reads: ReadEndpoint,
        explanations: Explanations,
        series: ProcessSeries,
        references: ServedReferences,
    ) -> None:
        self._manager = manager
        self._references = references
        self._series = series
        self._explanations = explanations
        self._reads = reads
        self._usage = ServedUsage()
        self._recorders = recorders
        self._follower = follower
        self._watches = watches
        self._growths = Growths()

    async def targets(self, request: Request) -> Response:
        """All processes that are served, those that can't be and why, and the kinds of profiles."""
        manager = self._manager
        if not manager.stopping.is_set():
            await self._follower.survey()
        running = [process.pid for process in manager.processes if process.ending is None]
        usage = await asyncio.to_thread(self._usage.of, running)
        listed = [self._served(process, usage.get(process.pid)) for process in manager.processes]
        listed += [_unserved(process) for process in self._follower.unrecorded]
        body = {
            "version": ebpfprof.__version__,
            "interval_s": manager.interval_s,
            "retention_s": manager.retention_s,
            "last_s": self._recorders.settings.last_s,
            "kinds": [described_kind(kind, manager.kinds) for kind in kinds()],
            "targets": listed,
        }
        return JSONResponse(body, headers=_HEADERS)

    async def timeline(self, request: Request) -> Response:
        """The windows of a process: how much was recorded in each. Prolongs its lease."""
        return await self._answered(request, self._timeline)

    async def goroutines(self, request: Request) -> Response:
        """Which goroutines hang, wait in a circle, or leak. Has the process watched for a time."""
        return await self._answered(request, self._goroutines)

    async def explain(self, request: Request) -> Response:
        """What is wrong with a process, observed for ?seconds=N from now on."""
        return await self._answered(request, self._explain)

    async def references(self, request: Request) -> Response:
        """What keeps the objects of a process alive, as export.references.page()."""
        return await self._answered(request, self._references_of)

    async def series(self, request: Request) -> Response:
        """What a process used and did in the last minutes. Has it sampled for a time."""
        return await self._answered(request, self._series_of)

    async def profile(self, request: Request) -> Response:
        """The profile of a time, as JSON."""
        return await self._answered(request, self._profile)

    async def pprof(self, request: Request) -> Response:
        """The profile of a time, as a pprof file; ?handler=TEXT: of handlers with such names."""
        return await self._answered(request, self._pprof)

    async def _answered(self, request: Request, answer: _Answer) -> Response:
        try:
            if self._manager.stopping.is_set():
                return refused(request.scope, 503, "This server is shutting down.")
            process = self._manager.find(request.path_params["pid"])
            if process is None:
                raise _NotFoundError(f"Process {request.path_params['pid']} is not served here.")
            kinds_of_page = page_kinds(process)
            kind = request.query_params.get("kind", kinds_of_page[0])
            if kind not in kinds_of_page:
                known = ", ".join(kinds_of_page)
                raise _BadRequestError(f"This process has no such profile, only {known}.")
            return await answer(request, process, kind)
        except _BadRequestError as error:
            return refused(request.scope, 400, str(error))
        except _NOT_FOUND as error:
            return refused(request.scope, 404, printable(in_one_line(str(error))))
        except EbpfprofError as error:
            return refused(request.scope, 500, printable(in_one_line(str(error))))

    async def _timeline(self, request: Request, process: RecordedProcess, kind: str) -> Response:
        windows, shown = [], kind_named(kind)
        if kind in process.kinds:
            problem = process.take_problem()
            self._manager.leases.lease(process, LEASE_S)
            if problem:
                return refused(request.scope, 500, problem)
        no_sums = [0] * len(shown.sample_types)
        for window in process.history.windows if kind in process.kinds else ():
            sums = totals(window.profiles[kind]) if kind in window.profiles else no_sums
            windows.append(
                {
                    "start_s": window.start_s,
                    "end_s": window.end_s,
                    "count": sums[shown.shown[0]],
                    "value": sums[shown.shown[1]],
                }
            )
        body = {
            "kind": kind,
            "unit": shown.unit,
            "interval_s": self._manager.interval_s,
            "windows": windows,
            **states.as_json(process),
        }
        return JSONResponse(body, headers=_HEADERS)

    async def _goroutines(self, _: Request, process: RecordedProcess, _kind: str) -> Response:
        is_over = process.ending is not None
        goroutines, sampled_s, problem = (
            self._watches.read(process) if not is_over else (None, 0.0, "")
        )
        body = {
            "sampled_s": sampled_s or None,
            "goroutines": goroutines.goroutines if goroutines else 0,
            "samples": goroutines.samples if goroutines else 0,
            "not_read": goroutines.beyond if goroutines else 0,
            "problem": problem or (_not_read(goroutines.beyond) if goroutines else ""),
            "findings": [
                *(findings.as_json(goroutines) if goroutines else []),
                *self._growing(process),
            ],
        }
        return JSONResponse(body, headers=_HEADERS)

    async def _explain(self, request: Request, process: RecordedProcess, _kind: str) -> Response:
        try:
            explained = await self._explanations.explain(process, asked_seconds(request))
        except BadParameterError as error:
            raise _BadRequestError(str(error)) from error
        return JSONResponse(explained, headers=_HEADERS)

    async def _references_of(self, _: Request, process: RecordedProcess, _kind: str) -> Response:
        found = await self._references.read(process, is_page=True)
        return Response(found, headers=_HEADERS, media_type="application/json")

    async def _series_of(self, request: Request, process: RecordedProcess, _kind: str) -> Response:
        series = self._series.as_json(process, _seconds(request, "after", 0.0))
        return JSONResponse(series, headers=_HEADERS)

    async def _profile(self, request: Request, process: RecordedProcess, kind: str) -> Response:
        profile = await self._of_time(request, process, kind, has_slices=True)
        body = await asyncio.to_thread(json_profile.encode, profile)
        return Response(body, headers=_HEADERS, media_type="application/json")

    async def _pprof(self, request: Request, process: RecordedProcess, kind: str) -> Response:
        profile = await self._of_time(request, process, kind)
        if handler := request.query_params.get("handler"):
            profile = await asyncio.to_thread(of_handler, profile, handler)
        body = await asyncio.to_thread(pprof.encode, profile)
        when = time.localtime(profile.time_ns / 1e9)
        name = default_name(process.name, process.pid, kind, when)
        headers = {**_HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
        return Response(body, headers=headers, media_type="application/octet-stream")

    async def _of_time(
        self, request: Request, process: RecordedProcess, kind: str, *, has_slices: bool = False
    ) -> Profile:
        if kind not in process.kinds:
            if process.ending is not None:
                raise _NotFoundError(f"{process.ending[:1].upper()}{process.ending[1:]}.")
            return await self._reads.profile(process, kind_named(kind))
        now_s = time.time()
        to_s = _seconds(request, "to", now_s)
        from_s = _seconds(request, "from", min(to_s, now_s) - _LATEST_S)
        if from_s >= to_s:
            raise _BadRequestError("from must be before to.")
        readings = self._manager.readings
        if to_s >= now_s:
            await readings.read_window(process, at_least_s=FRESH_S)
        return await readings.between(process, kind, from_s, to_s, has_slices=has_slices)

    def _served(self, process: RecordedProcess, usage: Usage | None) -> dict[str, Any]:
        version = process.target.go_version if process.target else None
        is_there, says = self._recorders.state(process)
        goroutines = self._watches.glance(process) if process.ending is None else None
        shown = [*(findings.as_json(goroutines) if goroutines else []), *self._growing(process)]
        return _listed(
            process.pid,
            process.name,
            process.about,
            recording=process.is_recording,
            kinds=page_kinds(process),
            read=[kind for kind in page_kinds(process) if kind not in process.kinds],
            ended=process.ending,
            last={"is_there": is_there, "says": says},
            cpu=usage and usage.cpu,
            memory_bytes=usage and usage.memory_bytes,
            goroutines=goroutines and goroutines.goroutines,
            not_read=goroutines.beyond if goroutines else 0,
            findings=[{"kind": finding["kind"], "title": finding["title"]} for finding in shown],
            **states.as_json(process),
            **({"go": version} if version else {}),
        )

    def _growing(self, process: RecordedProcess) -> list[dict[str, Any]]:
        return [findings.growth_as_json(growing) for growing in self._growths.of(process)]


def page_kinds(process: RecordedProcess) -> list[str]:
    """The kinds that the page shows of a process: what is recorded, and what is read on request."""
    read = () if not is_go(process) else (kind.name for kind in kinds() if is_read(kind))
    return list(dict.fromkeys((*process.kinds, *read)))


def _lock_option(kind: ProfileKind, recorded: Collection[str]) -> str:
    """The option with which its samples name the lock; "" if they do already, or never can."""
    teller = kind_with_option("lock_labels")
    can_tell = not kind.is_moment and kind.loader is teller.loader
    return f"--profile {teller.name}" if can_tell and teller.name not in recorded else ""


def _not_read(beyond: int) -> str:
    return f"There are too many: {beyond} goroutines were not read." if beyond else ""


def described_kind(kind: ProfileKind, recorded: Collection[str]) -> dict[str, Any]:
    """What the page needs to know of a kind of profiles: its words and the columns of tables.

    `recorded` are the names of the kinds that are recorded.
    """
    return {
        "name": kind.name,
        "title": kind.title,
        "summary": kind.summary,
        "moment": kind.is_moment,
        "at_a_time": kind.table.at_a_time,
        "lock_option": _lock_option(kind, recorded),
        "table": {"rows": kind.table.rows, "count": kind.table.count},
    }


def _unserved(about: GoProcess) -> dict[str, Any]:
    why_not = about.why_not or "there are too many processes to serve them all"
    return _listed(
        about.pid, about.name, about, supported=about.supported, why_not=why_not, says=why_not
    )


def _listed(pid: int, name: str, about: GoProcess | None, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A process as the page lists it; `about` is what the survey knows of it."""
    return {
        "pid": pid,
        "name": name,
        "command": about.command if about else name,
        "go": about.go_version if about else None,
        "container": about.container if about else None,
        "user": about.user if about else "",
        "prefix": f"/proc/{pid}",
        "supported": True,
        "why_not": "",
        "recording": False,
        "kinds": [],
        "read": [],
        "cpu": None,
        "memory_bytes": None,
        "goroutines": None,
        "not_read": 0,
        "findings": [],
        "ended": None,
        "last": {"is_there": False, "says": ""},
        "state": "idle",
        "says": "",
        **fields,
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
