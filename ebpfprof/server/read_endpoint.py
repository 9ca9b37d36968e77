"""Endpoints of what is read from memory for each request, whether or not it is recorded.

As net/http/pprof of the process's own Go version answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response

from ebpfprof.errors import EbpfprofError, TargetGone
from ebpfprof.export import pprof
from ebpfprof.profile.delta import difference
from ebpfprof.server.go_forms import parse_int
from ebpfprof.server.pprof_answers import (
    NOSNIFF,
    TEXT,
    attachment,
    debug_and_seconds,
    file,
    hang_up,
    parameter,
)

T = TypeVar("T")
NO_COLLECTION: Final = (
    "gc=1 asks for a garbage collection first: ebpfprof makes the process do nothing, so this is "
    "as of the latest one"
)
"""A comment for those who ask for one."""

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcess, OpenProcesses
    from ebpfprof.profile.kind import Endpoint, ProfileKind
    from ebpfprof.profile.model import Profile


class Reader(Protocol):
    """A module that reads a process: what Endpoint.reader names.

    Its functions take an open process, and raise NotGoProgram, TargetGone, PermissionDenied,
    UnreadableMemory, UnsupportedTarget, CorruptBinary or SymbolizerError.
    """

    profile: Callable[[OpenProcess, ProfileKind], Profile]
    """The profile now, of the given kind."""
    written: Callable[[OpenProcess, ProfileKind, int], bytes]
    """The text of ?debug=N, which is 1 at least."""
    count: Callable[[OpenProcess], int]
    """What the index of /debug/pprof/ says how many there are."""


class ReadEndpoint:
    """Answers for all processes of a manager; one at a time, since answers may be large."""

    def __init__(self, manager: Manager, processes: OpenProcesses) -> None:
        self._manager, self._processes = manager, processes
        self._turn = asyncio.Lock()

    async def answer(
        self, request: Request, process: RecordedProcess, kind: ProfileKind, endpoint: Endpoint
    ) -> Response:
        """One request. Raises BadParameterError, and what the endpoint's reader raises."""
        debug, seconds = debug_and_seconds(request)
        wants_body = request.method != "HEAD"
        if seconds is not None:
            delta = await self._delta(request, process, kind, seconds) if wants_body else None
            return await file(delta, attachment(f"{endpoint.name}-delta"))
        if debug == 0:
            profile = await self.profile(process, kind) if wants_body else None
            return await file(_explained(request, profile), attachment(endpoint.name))
        body = await self._text(process, kind, debug) if wants_body else None
        return Response(body, 200, NOSNIFF, TEXT)

    async def since_last(
        self, request: Request, process: RecordedProcess, kind: ProfileKind, endpoint: Endpoint
    ) -> Response:
        """What is new since the last request for this, by any client (godeltaprof).

        The first answer has all. Raises what the endpoint's reader raises.
        """
        profile = None
        if request.method != "HEAD":
            read = await self.profile(process, kind)
            profile = await self._manager.readings.since_last_read(process, read)
            profile = replace(profile, time_ns=read.time_ns)
        return await file(_explained(request, profile), attachment(f"{endpoint.name}.pprof.gz"))

    async def count(self, process: RecordedProcess, endpoint: Endpoint) -> int:
        """How many there are of the process; 0 if that can't be read."""
        try:
            return await asyncio.to_thread(self._opened, process, _reader(endpoint).count)
        except EbpfprofError:
            return 0

    async def _text(self, process: RecordedProcess, kind: ProfileKind, debug: int) -> bytes:
        if debug < 0:  # so does Go, with the headers of a text
            return pprof.encode(await self.profile(process, kind))
        reader = _reader(kind.endpoint)
        async with self._turn:
            return await asyncio.to_thread(
                self._opened, process, lambda opened: reader.written(opened, kind, debug)
            )

    async def profile(self, process: RecordedProcess, kind: ProfileKind) -> Profile:
        """The profile now. Raises what the endpoint's reader raises."""
        reader = _reader(kind.endpoint)
        async with self._turn:
            return await asyncio.to_thread(
                self._opened, process, lambda opened: reader.profile(opened, kind)
            )

    def _opened(self, process: RecordedProcess, read: Callable[[OpenProcess], T]) -> T:
        """What `read` returns of the process. Raises what that and OpenProcesses.open raise."""
        with self._processes.open(process.pid) as opened:
            return read(opened)

    async def _delta(
        self, request: Request, process: RecordedProcess, kind: ProfileKind, seconds: int
    ) -> Profile | None:
        """How the counts change in a few seconds; None if the client does not wait for it.

        Raises TargetGone if the process ends meanwhile.
        """
        before = await self.profile(process, kind)
        if not await self._manager.wait(process, seconds, hang_up(request)):
            return None
        if process.ending is not None:
            raise TargetGone(f"{process.ending[:1].upper()}{process.ending[1:]}.")
        after = await self.profile(process, kind)
        duration_ns = after.time_ns - before.time_ns
        changes = await asyncio.to_thread(difference, after, before)
        return replace(changes, time_ns=time.time_ns(), duration_ns=duration_ns)


def is_read(kind: ProfileKind) -> bool:
    """Whether it is read from memory on request, whatever is recorded."""
    return bool(kind.endpoint and kind.endpoint.reader)


def is_go(process: RecordedProcess) -> bool:
    """Whether a process runs a Go program, as far as is known before it is opened."""
    return process.target is None or process.target.go_version is not None


def _reader(endpoint: Endpoint | None) -> Reader:
    assert endpoint is not None
    return cast("Reader", import_module(endpoint.reader))


def _explained(request: Request, profile: Profile | None) -> Profile | None:
    """The profile, which says what ?gc=1 can't do: the process keeps running as it would."""
    if profile is None or parse_int(parameter(request, "gc"))[0] <= 0:
        return profile
    return replace(profile, comments=(*profile.comments, NO_COLLECTION))
