"""One run of the server: until it is asked to end, and then no longer than needed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ebpfprof.continuous.follow import Follower
from ebpfprof.continuous.manager import Manager
from ebpfprof.continuous.process import Live, LiveTarget
from ebpfprof.errors import Aborted
from ebpfprof.server.app import application
from ebpfprof.server.flight_recorders import FlightRecorders
from ebpfprof.server.quiet_server import QuietServer
from ebpfprof.server.series import ProcessSeries
from ebpfprof.server.trace_child import TraceSettings
from ebpfprof.server.watches import GoroutineWatches
from ebpfprof.system.signals import check

if TYPE_CHECKING:
    from ebpfprof.discovery.processes import ProcessTable
    from ebpfprof.goruntime.open_processes import OpenProcesses
    from ebpfprof.process.source_files import SourceFiles
    from ebpfprof.profile.completeness import Completeness
    from ebpfprof.server.access import Policy

_CHECK_S = 0.1


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
    lock_labels: bool = False
    """Whether what is scraped has labels of locks, as what the page shows."""
    traces: TraceSettings = field(default_factory=TraceSettings)

    def manager(self, live: Live, targets: Sequence[LiveTarget]) -> Manager:
        """A manager of the `targets`, which `live` has opened."""
        manager = Manager(
            live,
            kinds=self.kinds,
            interval_s=self.interval_s,
            retention_s=self.retention_s,
            continuous=self.continuous,
        )
        for target in targets:
            manager.add_opened(target)
        return manager

    def follower(self, manager: Manager, table: ProcessTable) -> Follower:
        """What finds the other processes for that manager."""
        return Follower(
            manager,
            table,
            follows=self.all_go,
            containers=self.containers,
            capacity=self.capacity,
        )


def run(
    service: Service,
    live: Live,
    targets: Sequence[LiveTarget],
    policy: Policy,
    listener: socket.socket,
    table: ProcessTable,
    processes: OpenProcesses,
    *,
    on_ready: Callable[[Manager], None],
    should_end: Callable[[], bool],
    sources: SourceFiles | None = None,
) -> list[Completeness]:
    """Serve the `targets`, which `live` has opened, until `should_end`, called ten times a second.

    Then requests that wait are answered with what was recorded so far. `table` finds the other
    processes, `processes` opens those that are read, `sources` reads source files. `on_ready` is
    called once clients are served. All probes are detached when it returns. It returns how much was
    lost of each profile. Raises Aborted at a signal that aborts.
    """

    async def serve() -> list[Completeness]:
        try:
            manager = service.manager(live, targets)
            follower = service.follower(manager, table)
            await _unless_aborted(follower.survey())
            watches = GoroutineWatches(manager, processes)
            series = ProcessSeries(manager, processes)
            recorders = FlightRecorders(manager, service.traces)
            app = application(
                *(manager, follower, policy, processes, watches, sources),
                lock_labels=service.lock_labels,
                recorders=recorders,
                series=series,
            )
            server = QuietServer(app)
            regular = (manager.run(), follower.run(), watches.run(), series.run(), recorders.run())
            await _serve(server, listener, manager, regular, on_ready, should_end)
            return [
                completeness for p in manager.processes for completeness in p.history.completeness()
            ]
        except KeyboardInterrupt:  # asyncio would complain of a task that ends so
            raise Aborted("Aborted.") from None

    return asyncio.run(serve())


async def _serve(
    server: QuietServer,
    listener: socket.socket,
    manager: Manager,
    regular: Sequence[Awaitable[None]],
    on_ready: Callable[[Manager], None],
    should_end: Callable[[], bool],
) -> None:
    """Serve while the `regular` work is done, the manager's first."""
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    working = [asyncio.ensure_future(task) for task in regular]
    managing, tasks = working[0], (serving, *working)
    try:
        while not server.started and not serving.done():
            check()
            await asyncio.sleep(0.01)
        if not serving.done():
            on_ready(manager)
        while not should_end() and not serving.done() and not managing.done():
            await asyncio.sleep(_CHECK_S)
        server.should_exit = True
        await _unless_aborted(manager.stop_at_once(ends_windows=False))
        await _unless_aborted(asyncio.gather(*tasks))
    finally:
        manager.stopping.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _unless_aborted(work: Awaitable[Any]) -> None:
    """Wait for the end of `work`. Raises KeyboardInterrupt when a signal aborts."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            check()
            await asyncio.wait([task], timeout=_CHECK_S)
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # of a gather() that was cancelled, which asyncio wants read
