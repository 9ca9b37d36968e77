"""The endpoint of goroutines, which are read for each request, whether or not they are recorded.

As net/http/pprof of the process's own Go version answers. What differs: the goroutine that would
answer the request is none of the process's. Goroutines that run when they are read have no stack:
Go stops them first.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ebpfprof.errors import EbpfprofError, TargetGone
from ebpfprof.export import pprof
from ebpfprof.profile.delta import difference
from ebpfprof.server import goroutines
from ebpfprof.server.pprof_answers import (
    NOSNIFF,
    TEXT,
    attachment,
    debug_and_seconds,
    file,
    hang_up,
)

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.profile.kind import Endpoint, ProfileKind
    from ebpfprof.profile.model import Profile


class GoroutineEndpoint:
    """Answers for all processes of a manager; one at a time, since answers may be large."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._turn = asyncio.Lock()

    async def answer(
        self, request: Request, process: RecordedProcess, kind: ProfileKind, endpoint: Endpoint
    ) -> Response:
        """One request. Raises BadParameterError, and what server.goroutines raises."""
        debug, seconds = debug_and_seconds(request)
        wants_body = request.method != "HEAD"
        if seconds is not None:
            delta = await self._delta(request, process, kind, seconds) if wants_body else None
            return await file(delta, attachment(f"{endpoint.name}-delta"))
        if debug == 0:
            profile = await self._profile(process, kind) if wants_body else None
            return await file(profile, attachment(endpoint.name))
        body = await self._text(process, kind, debug) if wants_body else None
        return Response(body, 200, NOSNIFF, TEXT)

    async def count(self, process: RecordedProcess) -> int:
        """How many goroutines the process has; 0 if that can't be read."""
        try:
            return await asyncio.to_thread(goroutines.count, process.pid)
        except EbpfprofError:
            return 0

    async def _text(self, process: RecordedProcess, kind: ProfileKind, debug: int) -> bytes:
        if debug < 0:  # so does Go, with the headers of a text
            return pprof.encode(await self._profile(process, kind))
        read = goroutines.traceback if debug > 1 else goroutines.text
        async with self._turn:
            return await asyncio.to_thread(read, process.pid)

    async def _profile(self, process: RecordedProcess, kind: ProfileKind) -> Profile:
        async with self._turn:
            return await asyncio.to_thread(goroutines.profile, process.pid, kind)

    async def _delta(
        self, request: Request, process: RecordedProcess, kind: ProfileKind, seconds: int
    ) -> Profile | None:
        """How the counts change in some seconds; None if the client does not wait for it.

        Raises TargetGone if the process ends meanwhile.
        """
        before = await self._profile(process, kind)
        if not await self._manager.wait(process, seconds, hang_up(request)):
            return None
        if process.ending is not None:
            raise TargetGone(f"{process.ending[:1].upper()}{process.ending[1:]}.")
        after = await self._profile(process, kind)
        duration_ns = after.time_ns - before.time_ns
        changes = await asyncio.to_thread(difference, after, before)
        return replace(changes, time_ns=time.time_ns(), duration_ns=duration_ns)
