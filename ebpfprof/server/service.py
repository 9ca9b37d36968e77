"""One run of the server: until somebody wants it to end, and then no longer than needed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from ebpfprof.continuous.follow import Discovery
from ebpfprof.continuous.manager import Recorder
from ebpfprof.continuous.process import Live
from ebpfprof.errors import Aborted
from ebpfprof.server.app import application
from ebpfprof.server.connections import Connection, Waiting
from ebpfprof.server.listener import BACKLOG
from ebpfprof.system.signals import check

if TYPE_CHECKING:
    from ebpfprof.discovery.processes import ProcessTable
    from ebpfprof.server.access import Policy

_LOOK_S = 0.1
_LAST_ANSWERS_S = 10  # how long clients may take, at the end, to read what they are answered


@dataclass(frozen=True, slots=True)
class Service:
    """What is served and how: see the options of `ebpfprof serve`."""

    kinds: tuple[str, ...]
    interval_s: float = 5.0
    retention_s: float = 600.0
    continuous: bool = False
    all_go: bool = False
    containers: tuple[str, ...] = ()
    capacity: int = 64


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(
    live: Live,
    targets: list[Any],
    service: Service,
    policy: Policy,
    listener: socket.socket,
    table: ProcessTable,
    *,
    on_ready: Callable[[Recorder], None],
    should_end: Callable[[], bool],
) -> None:
    """Serve the `targets`, which `live` has opened, until `should_end`, asked ten times a second.

    Then requests that wait are answered with what was recorded so far. `table` finds the other
    processes. `on_ready` is called once clients are served. All probes are out when it returns.
    Raises Aborted at a signal that aborts.
    """
    serving = _run(live, targets, service, policy, listener, table, on_ready, should_end)
    asyncio.run(_aborted(serving))


async def _aborted(serving: Awaitable[None]) -> None:
    try:
        await serving
    except KeyboardInterrupt:  # asyncio would complain of a task that ends so
        raise Aborted("Aborted.") from None


async def _run(
    live: Live,
    targets: list[Any],
    service: Service,
    policy: Policy,
    listener: socket.socket,
    table: ProcessTable,
    on_ready: Callable[[Recorder], None],
    should_end: Callable[[], bool],
) -> None:
    recorder = Recorder(
        live,
        kinds=service.kinds,
        interval_s=service.interval_s,
        retention_s=service.retention_s,
        continuous=service.continuous,
    )
    discovery = Discovery(
        recorder,
        table,
        follows=service.all_go,
        containers=service.containers,
        capacity=service.capacity,
    )
    for target in targets:
        recorder.serve_opened(target)
    await _unless_aborted(discovery.look())
    server = _Server(_config(application(recorder, discovery, policy)))
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    helpers = [asyncio.ensure_future(recorder.run()), asyncio.ensure_future(discovery.run())]
    try:
        while not server.started and not serving.done():
            check()
            await asyncio.sleep(0.01)
        if not serving.done():
            on_ready(recorder)
        while not should_end() and not any(task.done() for task in (serving, *helpers[:1])):
            await asyncio.sleep(_LOOK_S)
        server.should_exit = True
        await _unless_aborted(recorder.stop())
        await _unless_aborted(asyncio.gather(serving, *helpers))
    finally:
        recorder.stopping.set()
        for task in (serving, *helpers):
            task.cancel()
        await asyncio.gather(serving, *helpers, return_exceptions=True)


async def _unless_aborted(work: Awaitable[Any]) -> None:
    """Wait for the end of `work`, but no longer than until a signal aborts: KeyboardInterrupt."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            check()
            await asyncio.wait([task], timeout=_LOOK_S)
        await task
    finally:
        task.cancel()


def _config(app: Any) -> uvicorn.Config:  # noqa: ANN401
    return uvicorn.Config(
        app,
        http=partial(Connection, Waiting()),  # type: ignore[arg-type]
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        # Who a client is, the kernel says, and no header.
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
    )
