"""The agent as a service: from its start to SIGTERM, with reloads in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.explaining import ExplainingInTurn
from ebpfprof.agent.identity.pods import pods_of_node
from ebpfprof.agent.identity.service import Identifier
from ebpfprof.agent.memory_guard import MemoryGuard
from ebpfprof.agent.roster import Roster
from ebpfprof.agent.rounds import Rounds
from ebpfprof.agent.settings import Settings
from ebpfprof.agent.sinks.opening import Sinks
from ebpfprof.console.text import listed
from ebpfprof.errors import Aborted, BadConfig, EbpfprofError
from ebpfprof.server.quiet_server import QuietServer
from ebpfprof.settings.setting import settings_of
from ebpfprof.system.signals import check

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

    from ebpfprof.agent.explaining import Find
    from ebpfprof.agent.log import Log
    from ebpfprof.agent.memory_guard import FindNear, Keep
    from ebpfprof.continuous.process import Live
    from ebpfprof.discovery.processes import ProcessTable
    from ebpfprof.system.notify import Notifier

SURVEY_S: Final = 3.0
TICK_S: Final = 0.25
ALIVE_S: Final = 1.0
_STUCK_S: Final = 300.0
_FIXED: Final = (*(one.name for one in settings_of(Settings) if not one.is_live), "options")


class Agent:
    """Records the Go processes of this machine. Belongs to one event loop."""

    def __init__(
        self,
        settings: Settings,
        live: Live,
        find: Find,
        near: FindNear,
        keep: Keep,
        table: ProcessTable,
        log: Log,
        notifier: Notifier,
    ) -> None:
        """For `find` see ExplainingInTurn."""
        self.settings, self.log = settings, log
        self._notifier = notifier
        self.sinks = Sinks(log.say)
        self.pods = pods_of_node(settings, log.say)
        self.roster = Roster(table, Identifier(settings, self.pods), settings, log)
        self.rounds = Rounds(live, self.roster, settings, log, self.sinks.give)
        self.explaining = ExplainingInTurn(self.rounds, find, log, self.sinks.give)
        self.guard = MemoryGuard(self.rounds, near, keep, log, self.sinks.give)
        self._worked_s = time.monotonic()
        self.is_ready = False
        self.is_config_right = True

    async def run(
        self,
        app: ASGIApp,
        listener: socket.socket | None,
        *,
        should_end: Callable[[], bool],
        reloads: Callable[[], int],
        load: Callable[[], Settings],
        on_ready: Callable[[], None],
    ) -> None:
        """Record until `should_end`; when `reloads` has grown, `load` returns new settings.

        `app` handles the requests at `listener`. At the end, all windows have been passed to sinks.
        The live session still has to be closed, to remove all probes. Raises Aborted if a signal
        aborts.
        """
        working = asyncio.ensure_future(self.rounds.manager.run())
        serving = asyncio.ensure_future(self._serve(app, listener))
        feeding = asyncio.ensure_future(self._feed_watchdog())
        explaining = asyncio.ensure_future(self.explaining.run())
        guarding = asyncio.ensure_future(self.guard.run())
        try:
            await asyncio.to_thread(self.sinks.use, self.settings)
            await asyncio.to_thread(self.roster.survey)
            self.rounds.begin()
            self.is_ready = True
            on_ready()
            self._notifier.ready(self._status())
            await self._until_end(self._work(reloads, load), working, should_end)
            self.is_ready = False
            self.explaining.stop()
            self.guard.stop()
            self._notifier.stopping()
            await self._unless_aborted(self._end())
        except KeyboardInterrupt:  # asyncio would complain about a task that ends with it
            raise Aborted("Aborted.") from None
        finally:
            self.rounds.manager.stopping.set()
            self.explaining.stop()
            self.guard.stop()
            tasks = (working, serving, feeding, explaining, guarding)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_end(
        self, work: Awaitable[None], beside: asyncio.Future[None], should_end: Callable[[], bool]
    ) -> None:
        """Do the work until `should_end`, and cancel it then.

        Raises the error that ends the work or `beside`: without it, the agent would miss that
        processes end.
        """
        task = asyncio.ensure_future(work)
        try:
            while not should_end():
                done, _ = await asyncio.wait(
                    [task, beside], timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED
                )
                for future in done:
                    await future
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _work(self, reloads: Callable[[], int], load: Callable[[], Settings]) -> None:
        loaded, surveyed_s = reloads(), time.monotonic()
        while True:
            self._worked_s = time.monotonic()
            if reloads() != loaded:
                loaded = reloads()
                await self._reload(load)
            if time.monotonic() >= surveyed_s + SURVEY_S:
                surveyed_s = time.monotonic()
                await asyncio.to_thread(self.roster.survey)
                await self.rounds.settle()
            self.rounds.start_some()
            if time.monotonic() >= self.rounds.next_turn_s:
                await self.rounds.turn()
                self._notifier.status(self._status())
            await asyncio.sleep(TICK_S)

    async def _feed_watchdog(self) -> None:
        """Notify systemd's watchdog, unless the agent has hung for minutes."""
        while time.monotonic() - self._worked_s < _STUCK_S:
            self._notifier.alive()
            await asyncio.sleep(ALIVE_S)

    async def _end(self) -> None:
        await self.rounds.stop()
        await asyncio.to_thread(self.sinks.close)
        self.pods.close()

    async def _reload(self, load: Callable[[], Settings]) -> None:
        """Reload the file; a wrong file changes nothing."""
        self._notifier.reloading()
        try:
            loaded = load()
        except BadConfig as error:
            self.is_config_right = False
            self.log.say(f"The configuration is unchanged: {error}")
        else:
            self.is_config_right = True
            fixed = [n for n in _FIXED if getattr(loaded, n) != getattr(self.settings, n)]
            kept = {name: getattr(self.settings, name) for name in _FIXED}
            await self._use(replace(loaded, **kept), fixed)
        self._notifier.ready(self._status())

    async def _use(self, settings: Settings, fixed: Sequence[str]) -> None:
        """Apply these settings, which have the old values of those that are `fixed`."""
        try:
            await asyncio.to_thread(self.sinks.use, settings)
        except EbpfprofError as error:
            self.is_config_right = False
            self.log.say(f"The configuration is unchanged: {error}")
            return
        if _of_pods(settings) != _of_pods(self.settings):
            self.pods.close()
            self.pods = pods_of_node(settings, self.log.say)
        self.settings = self.rounds.settings = settings
        await asyncio.to_thread(self.roster.use, Identifier(settings, self.pods), settings)
        await asyncio.to_thread(self.roster.survey)
        await self.rounds.settle()
        later = f"; restart the agent to change {listed(fixed)}" if fixed else ""
        self.log.say(f"The configuration was reloaded{later}.")

    async def _serve(self, app: ASGIApp, listener: socket.socket | None) -> None:
        """Handle HTTP requests until the agent ends."""
        if listener is None:
            return
        server = QuietServer(app)
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            await task
        finally:
            server.should_exit = True
            await asyncio.wait([task], timeout=1.0)
            task.cancel()

    async def _unless_aborted(self, work: Awaitable[None]) -> None:
        """Wait for the end of `work`. Raises KeyboardInterrupt if a signal aborts."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                check()
                await asyncio.wait([task], timeout=TICK_S)
            await task
        finally:
            task.cancel()

    def _status(self) -> str:
        rounds = self.rounds
        recorded = rounds.recorded + rounds.starting
        return f"{recorded} processes recorded, {len(rounds.waiting)} waiting"


def _of_pods(settings: Settings) -> tuple[object, ...]:
    """The settings that pods depend on."""
    return settings.kubernetes, settings.host_root, settings.node_name
