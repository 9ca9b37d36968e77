"""Continuous recording of processes, for a server, an agent, or any other program.

A Manager knows the processes. `Manager.leases` says how long each of them is recorded,
`Manager.readings` gives what was recorded:

    with LiveSession(options) as live:
        manager = Manager(live, kinds=options.kinds)
        process = manager.add_opened(live.add(pid))
        running = asyncio.create_task(manager.run())
        async with manager.leases.recording(process):
            await manager.wait(process, seconds=10)
            profile = await manager.readings.snapshot(process, "block")
        await manager.stop()
        await running
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ebpfprof.continuous.leases import FOREVER, Leases
from ebpfprof.continuous.lifecycle import Lifecycle
from ebpfprof.continuous.process import Live, LiveTarget, RecordedProcess
from ebpfprof.continuous.readings import OnWindow, Readings, notify_user

if TYPE_CHECKING:
    from ebpfprof.discovery.processes import GoProcess

CHECK_S = 0.25
"""How often the manager checks which processes ended and which leases are over, in seconds."""
MAX_ENDED = 256
"""Of how many found processes that ended the history is kept: of those that ended last."""


class Manager:
    """The processes that are recorded, by pid. Belongs to one event loop.

    `live` records them; its calls run in threads. Each of the `kinds` is recorded of processes that
    are found. While a process is recorded, a window of its history ends every `interval_s` seconds,
    and windows are kept for `retention_s` seconds. If `continuous`, each process is recorded all
    the time, otherwise while it has users (see Leases). With `on_window`, no history is kept: it
    gets each window, in a thread. `notify` is called with messages about problems.
    """

    def __init__(
        self,
        live: Live,
        *,
        kinds: Iterable[str],
        interval_s: float = 5.0,
        retention_s: float = 600.0,
        continuous: bool = False,
        on_window: OnWindow | None = None,
        notify: Callable[[str], None] = notify_user,
    ) -> None:
        self.live = live
        self.kinds = tuple(kinds)
        self.interval_s = interval_s
        self.retention_s = retention_s
        self.continuous = continuous
        self.stopping = asyncio.Event()
        """Set when stop() was called: waiting ends, and no recording begins."""
        self.kept: set[RecordedProcess] = set()
        """Processes that are not forgotten when they end: somebody else has something of them."""
        self._processes: dict[int, RecordedProcess] = {}
        self.readings = Readings(
            live, lambda: [p.history for p in self._processes.values()], on_window, notify
        )
        self.leases = Leases(Lifecycle(live), self.readings, self.stopping, notify)

    @property
    def processes(self) -> list[RecordedProcess]:
        """All of them by pid, with those that ended lately."""
        return sorted(self._processes.values(), key=lambda process: process.pid)

    def find(self, pid: int) -> RecordedProcess | None:
        """The process with this pid, if there is one here."""
        return self._processes.get(pid)

    def add_opened(self, target: LiveTarget, about: GoProcess | None = None) -> RecordedProcess:
        """Add a process that LiveSession.add has opened; it stays here when it ends."""
        process = RecordedProcess(
            target.pid, tuple(target.kinds), about, target=target, opened_name=target.name
        )
        return self._add(process)

    def add_found(self, about: GoProcess) -> RecordedProcess:
        """Add a Go process that a survey found; the first recording opens it.

        It replaces an ended process with the same pid.
        """
        return self._add(RecordedProcess(about.pid, self.kinds, about, is_found=True))

    def note_ending(self, process: RecordedProcess, ending: str) -> None:
        """Note that a process ended; `ending` says how: "process 7 ended"."""
        self.leases.end(process, ending)

    async def wait(
        self, process: RecordedProcess, seconds: float, until: Awaitable[object] | None = None
    ) -> bool:
        """Wait for `seconds`, or until the process ends, stop() is called or `until` is done.

        Returns False if `until` was done; it is cancelled otherwise.
        """
        ends: list[Awaitable[object]] = [process.ended.wait(), self.stopping.wait()]
        tasks = [asyncio.ensure_future(end) for end in (ends if until is None else [until, *ends])]
        try:
            await asyncio.wait(tasks, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
            return until is None or not tasks[0].done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self) -> None:
        """Until stop(): end windows, end leases, and notice processes that end."""
        next_window_s = time.monotonic() + self.interval_s
        while not self.stopping.is_set():
            for process in self.processes:
                await self._check(process)
            if time.monotonic() >= next_window_s:
                next_window_s += self.interval_s
                await self._end_windows()
            self._forget_ended()
            with suppress(TimeoutError):  # not stopping: the next check is due
                await asyncio.wait_for(self.stopping.wait(), CHECK_S)

    async def stop(self) -> None:
        """End all waiting and all leases; without other users, no probe is left afterwards."""
        self.stopping.set()
        await self.leases.stop(self.processes)

    async def stop_at_once(self, *, ends_windows: bool) -> None:
        """End all waiting; the caller then closes the live session.

        To close it detaches all probes together, in a fraction of the time of stop(). With
        `ends_windows` the last windows end now; without, what they had is not read.
        """
        self.leases.leaves_attached = True
        self.stopping.set()
        await self.leases.join()
        if ends_windows:
            for process in self.processes:
                await self.readings.end_window(process)

    def _add(self, process: RecordedProcess) -> RecordedProcess:
        self._processes[process.pid] = process
        if self.continuous:
            self.leases.lease(process, FOREVER)
        return process

    async def _check(self, process: RecordedProcess) -> None:
        target = process.target
        if target and target.ending and process.ending is None:
            await self.readings.end_window(process)
            self.note_ending(process, target.ending.text)
        self.leases.end_overdue(process)

    async def _end_windows(self) -> None:
        for process in self.processes:
            if self.continuous:  # it may not have been possible before
                self.leases.lease(process, FOREVER)
            # The first window is not cut short: steps of a timeline are of about one length.
            is_long = time.time() - process.history.begun_s >= self.interval_s / 2
            if process.is_recording and is_long:
                await self.readings.end_window(process)
            process.history.forget(time.time() - self.retention_s)

    def _forget_ended(self) -> None:
        """Forget found processes that ended and have no history, or of which there are too many.

        Processes that the user named stay, so that their ending can be shown.
        """
        processes = [process for process in self._processes.values() if process.is_found]
        ended = [process for process in processes if process.is_closed and process not in self.kept]
        # Those without a history come first; of the others, those that ended first.
        ended.sort(key=lambda one: (bool(one.history.windows), one.ended_s))
        kept = min(sum(bool(process.history.windows) for process in ended), MAX_ENDED)
        for process in ended[: len(ended) - kept]:
            del self._processes[process.pid]
