"""The application: which handler answers which address."""

from __future__ import annotations

from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ebpfprof.console.terminal import say
from ebpfprof.console.text import printable
from ebpfprof.server.access import Access, Policy
from ebpfprof.server.connections import Admitted
from ebpfprof.server.explanations import Explanations
from ebpfprof.server.flight_recorders import FlightRecorders
from ebpfprof.server.go_forms import clean_path
from ebpfprof.server.health import READY, Alive, Readiness
from ebpfprof.server.metrics import Counted, Metrics
from ebpfprof.server.page_api import PageApi
from ebpfprof.server.pprof_endpoints import PprofEndpoints
from ebpfprof.server.read_endpoint import ReadEndpoint
from ebpfprof.server.references import ServedReferences
from ebpfprof.server.refusals import refused
from ebpfprof.server.series import ProcessSeries
from ebpfprof.server.source_api import SourceApi
from ebpfprof.server.trace_child import TraceSettings
from ebpfprof.server.watches import GoroutineWatches

if TYPE_CHECKING:
    from ebpfprof.continuous.follow import Follower
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.goruntime.open_processes import OpenProcesses
    from ebpfprof.process.source_files import SourceFiles

WEB_FOLDER = Path(__file__).parent.parent / "web"
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]  # refused as Go does


class _Pid(Convertor[int]):
    """A number in a path, with no more digits than Python converts."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("pid", _Pid())


def application(
    manager: Manager,
    follower: Follower,
    policy: Policy,
    processes: OpenProcesses,
    watches: GoroutineWatches | None = None,
    sources: SourceFiles | None = None,
    *,
    lock_labels: bool = False,
    recorders: FlightRecorders | None = None,
    series: ProcessSeries | None = None,
) -> ASGIApp:
    """All handlers, behind the middleware that decides which requests they get.

    `processes` opens processes to read them. For `lock_labels` and `recorders` see PprofEndpoints.
    """
    watches = watches or GoroutineWatches(manager, processes)
    recorders = recorders or FlightRecorders(manager, TraceSettings())
    series = series or ProcessSeries(manager, processes)
    reads = ReadEndpoint(manager, processes)
    explanations = Explanations(manager, processes)
    pprof = PprofEndpoints(manager, recorders, reads, processes, lock_labels=lock_labels)
    metrics = Metrics(manager, watches, recorders, processes)
    references = ServedReferences(manager, processes.options)
    api = PageApi(manager, follower, watches, recorders, reads, explanations, series, references)
    routes = [
        Route("/", _page),
        Route("/assets/{name:path}", _asset),
        Route("/metrics", metrics.__call__),
        Route(READY, Readiness(manager).__call__),
        Route("/api/targets", api.targets),
        Route("/api/targets/{pid:pid}/timeline", api.timeline),
        Route("/api/targets/{pid:pid}/goroutines", api.goroutines),
        Route("/api/targets/{pid:pid}/explain", api.explain),
        Route("/api/targets/{pid:pid}/references", api.references),
        Route("/api/targets/{pid:pid}/series", api.series),
        Route("/api/targets/{pid:pid}/profile", api.profile),
        Route("/api/targets/{pid:pid}/source", SourceApi(manager, sources).source),
        Route("/api/targets/{pid:pid}/pprof", api.pprof),
    ]
    for prefix in ("", "/proc/{pid:pid}"):
        routes += [
            Route(f"{prefix}/debug/explain", explanations.__call__),
            Route(f"{prefix}/debug/references", references.__call__),
            Route(f"{prefix}/debug/fgprof", pprof.fgprof, methods=_METHODS),
            Route(f"{prefix}/debug/pprof", pprof.redirect, methods=_METHODS),
            Route(f"{prefix}/debug/pprof/{{name:path}}", pprof.__call__, methods=_METHODS),
        ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error, Exception: _bug})
    app.router.redirect_slashes = False
    return Counted(Alive(Access(Admitted(_Cleaned(app)), policy)), metrics.requests)


class _Cleaned:
    """Middleware (ASGI) that redirects a path with a slash too many to the right one, as Go."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Redirect, or pass the request on."""
        path = scope["raw_path"].decode("latin-1")
        clean = clean_path(path)
        if clean == path:
            await self._app(scope, receive, send)
            return
        query = scope["query_string"].decode("latin-1")
        where = clean + (f"?{query}" if query else "")
        headers = {"X-Content-Type-Options": "nosniff"}
        await RedirectResponse(where, 307, headers)(scope, receive, send)


async def _page(request: Request) -> Response:
    return _file("index.html")


async def _asset(request: Request) -> Response:
    return _file(request.path_params["name"])


def _file(name: str) -> Response:
    """A file of the page; 404 if WEB_FOLDER has none of that name."""
    files = {
        str(path.relative_to(WEB_FOLDER)): path
        for path in WEB_FOLDER.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    if name not in files:
        raise HTTPException(404)
    media_type, _ = guess_type(name)
    return Response(
        files[name].read_bytes(), headers=_PAGE_HEADERS, media_type=media_type or "text/plain"
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return refused(request.scope, 404, "There is nothing here: / shows what is served.")
    return refused(request.scope, error.status_code, error.detail, dict(error.headers or {}))


async def _bug(request: Request, error: Exception) -> Response:
    """Report an unexpected exception on stderr; the client learns only that there was one."""
    say(
        f"ebpfprof: This is a bug: {type(error).__name__} at {printable(request.url.path)}: "
        f"{printable(str(error))}. Please report it.",
        err=True,
    )
    return refused(request.scope, 500, "Something went wrong in ebpfprof; its stderr says what.")
