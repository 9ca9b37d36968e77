"""How long a process is recorded: while a block runs, and while a lease lasts.

The probes of a process are attached as long as it has users: blocks of Leases.recording, and at
most one lease, which callers prolong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ebpfprof.console.text import in_one_line, printable
from ebpfprof.continuous.background import BackgroundTasks
from ebpfprof.continuous.readings import notify_user
from ebpfprof.errors import EbpfprofError, TargetGone

if TYPE_CHECKING:
    from ebpfprof.continuous.lifecycle import Lifecycle
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.continuous.readings import Readings

FOREVER = float("inf")
"""The length of a lease that ends with the process, or with the manager."""


class Leases:
    """Counts the users of processes: the first one starts a recording, the last one stops it."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        readings: Readings,
        stopping: asyncio.Event,
        notify: Callable[[str], None] = notify_user,
    ) -> None:
        """Once `stopping` is set, no lease begins. For `notify` see Manager."""
        self.leaves_attached = False
        """Whether processes stay attached without users: the live session is about to close."""
        self._notify_user = notify
        self._lifecycle = lifecycle
        self._readings = readings
        self._stopping = stopping
        self._background = BackgroundTasks()

    @asynccontextmanager
    async def recording(self, process: RecordedProcess) -> AsyncIterator[None]:
        """Record a process while the block runs; all probes are attached when it begins.

        Raises ebpfprof.errors; TargetGone if the process has ended.
        """
        # Shielded: a caller that is cancelled meanwhile must not leave a probe behind.
        await self._background.complete(
            self._add_user(process), undo=lambda: self._remove_user(process)
        )
        try:
            yield
        finally:
            await self._background.complete(self._remove_user(process))

    def lease(self, process: RecordedProcess, length_s: float) -> None:
        """Record a process for `length_s` seconds from now, or FOREVER.

        A lease never becomes shorter. Where recording can't begin, `problem` of the process says
        why, and the next call tries again.
        """
        process.leased_until_s = max(process.leased_until_s, time.monotonic() + length_s)
        if not process.is_leased and process.ending is None:
            process.is_leased = True
            self._background.start(self._begin_lease(process))

    def end_overdue(self, process: RecordedProcess) -> None:
        """End the lease of a process if its time is over."""
        if time.monotonic() > process.leased_until_s:
            self._end_lease(process)

    async def release(self, process: RecordedProcess, ending: str) -> None:
        """Record a process no longer: end its lease and its last window, and close it.

        `ending` says why, as of a process that ended; nothing of it is recorded again.
        """
        if process.holds_lease:
            process.is_leased = process.holds_lease = False
            await self._background.complete(self._remove_user(process))
        self.end(process, ending)

    def end(self, process: RecordedProcess, ending: str) -> None:
        """The process ended, as `ending` says: its lease ends; without users, it is closed."""
        if process.ending is None:
            process.end(ending)
            self._end_lease(process)
            self._background.start(self._close(process))

    async def stop(self, processes: Iterable[RecordedProcess]) -> None:
        """End the leases of these processes, and wait for all work in the background."""
        for process in processes:
            process.leased_until_s = 0.0
            self._end_lease(process)
        await self._background.join()

    async def join(self) -> None:
        """Wait for all work in the background."""
        await self._background.join()

    async def _begin_lease(self, process: RecordedProcess) -> None:
        try:
            await self._add_user(process)
        except EbpfprofError as error:
            process.is_leased = False
            if not isinstance(error, TargetGone):  # see `ending`
                self._notify(process, printable(in_one_line(str(error))))
            return
        except Exception as error:  # an unforeseen program must not stop the others
            process.is_leased = False
            what = printable(f"{type(error).__name__}: {error}")
            shown = f"Process {process.pid} ({process.name})"
            self._notify(process, f"{shown} can't be recorded: {what}")
            return
        process.holds_lease = True
        if process.ending is not None or self._stopping.is_set():
            self._end_lease(process)

    def _end_lease(self, process: RecordedProcess) -> None:
        if process.holds_lease:
            process.is_leased = process.holds_lease = False
            self._background.start(self._remove_user(process))

    async def _add_user(self, process: RecordedProcess) -> None:
        async with process.lock:
            if process.ending is not None:
                raise TargetGone(f"The recording has ended: {process.ending}.")
            if process.users == 0:
                await self._lifecycle.start(process)
            process.users += 1

    async def _remove_user(self, process: RecordedProcess) -> None:
        async with process.lock:
            process.users -= 1
            if self.leaves_attached:
                return
            if process.users == 0 and process.target is not None:
                await self._lifecycle.stop(process)
                if process.ending is None:
                    await self._readings.end_locked_window(process)
        if process.ending is not None:
            await self._close(process)

    async def _close(self, process: RecordedProcess) -> None:
        """Close a process that ended, unless a user still reads what was recorded of it."""
        async with process.lock:
            if process.users == 0:
                await self._lifecycle.close(process)

    def _notify(self, process: RecordedProcess, problem: str) -> None:
        process.problem = problem
        if problem != process.reported_problem:
            self._notify_user(problem)
        process.reported_problem = problem
