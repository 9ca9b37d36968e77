"""A process in the live session: opened when it is first needed, started, stopped, closed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ebpfprof.continuous.process import Phase
from ebpfprof.errors import NoSuchProcess, NotGoProgram, TargetGone, UnsupportedTarget

if TYPE_CHECKING:
    from ebpfprof.continuous.process import Live, LiveTarget, RecordedProcess


class _NotFoundAgainError(Exception):
    """A process that a survey found has ended, or runs another program now."""


class Lifecycle:
    """Opens, starts, stops and closes processes. All methods need the lock of the process."""

    def __init__(self, live: Live) -> None:
        self._live = live

    async def start(self, process: RecordedProcess) -> None:
        """Attach the probes and samplers, and begin a window; open the process before if needed.

        Raises ebpfprof.errors; TargetGone if the process ended: then `ending` says how, too.
        """
        try:
            await asyncio.to_thread(self._start, process)
        except _NotFoundAgainError as error:
            process.end(f"process {process.pid} ended or replaced itself by another program")
            raise TargetGone(f"Nothing was recorded: {process.ending}.") from error
        finally:
            process.phase = Phase.NONE
        process.since_s = time.monotonic()
        process.history.begin(time.time())

    async def stop(self, process: RecordedProcess) -> None:
        """Detach the probes and samplers; what was recorded can still be read."""
        if process.target is not None:
            await asyncio.to_thread(self._live.stop, process.target)

    async def close(self, process: RecordedProcess) -> None:
        """Free what the live session holds of it. Its history stays."""
        if process.target is not None:
            target, process.target, process.window_began = process.target, None, None
            process.history.sums.clear()
            process.last_read.clear()
            await asyncio.to_thread(self._live.remove, target)

    def _start(self, process: RecordedProcess) -> None:
        if process.target is None:
            process.phase = Phase.READING
            process.target = self._opened(process)
            process.opened_name = process.target.name
        process.handlers = process.target.handlers
        process.phase = Phase.ATTACHING
        sums = self._live.start(process.target)
        if process.window_began is None:
            process.window_began = sums

    def _opened(self, process: RecordedProcess) -> LiveTarget:
        """Open a process that a survey found some time ago."""
        try:
            target: LiveTarget = self._live.add(process.pid)
        except (NoSuchProcess, UnsupportedTarget, NotGoProgram, TargetGone) as error:
            raise _NotFoundAgainError from error
        if set(target.kinds) != set(process.kinds):  # it is no Go program any more
            self._live.remove(target)
            raise _NotFoundAgainError
        return target
