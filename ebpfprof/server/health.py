"""For probes of an orchestrator: /healthz, whether the server answers; /readyz, whether it records.

/healthz is answered without a token and to any user: it reveals nothing else. /readyz counts
processes, so it is for those who may see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ebpfprof.server.refusals import refused

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager

HEALTH: Final = "/healthz"
READY: Final = "/readyz"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Alive:
    """Middleware (ASGI) that answers /healthz, and passes all other requests on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        is_asked = scope["type"] == "http" and scope["path"] == HEALTH
        is_read = is_asked and scope["method"] in ("GET", "HEAD")
        answer = PlainTextResponse("ok\n", headers=_HEADERS) if is_read else self._app
        await answer(scope, receive, send)


class Readiness:
    """The endpoint /readyz: 200 while all that is to be recorded is recorded, else 503.

    With --continuous that is each process that runs; else nothing, since requests start recordings.
    """

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def __call__(self, request: Request) -> Response:
        """How many processes run, and how many of them are recorded."""
        manager = self._manager
        running = [process for process in manager.processes if process.ending is None]
        recorded = sum(process.is_recording for process in running)
        is_ready = bool(running) and (not manager.continuous or recorded == len(running))
        words = f"{recorded} of {len(running)} running processes recorded now"
        if is_ready and not manager.stopping.is_set():
            return PlainTextResponse(f"ready: {words}\n", headers=_HEADERS)
        why = "the server ends" if manager.stopping.is_set() else words
        return refused(request.scope, 503, f"Not ready: {why}.")
