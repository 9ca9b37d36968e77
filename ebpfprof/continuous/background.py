"""Tasks that run to their end, also if their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class BackgroundTasks:
    """Holds the tasks that run, so that they are not collected as garbage."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def start(self, work: Awaitable[None]) -> None:
        """Run `work` to its end while the caller continues."""
        self._keep(asyncio.ensure_future(work))

    async def complete(
        self, work: Awaitable[_T], undo: Callable[[], Awaitable[None]] | None = None
    ) -> _T:
        """Wait for the end of `work`; if the caller is cancelled, it continues in the background.

        Then `undo` follows if `work` succeeded; asyncio logs what it raises. Raises what `work`
        raises.
        """
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if undo:
                self.start(_undone(task, undo))
            else:
                self._keep(task)
            raise

    async def join(self) -> None:
        """Wait until none runs, those included that are started meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _keep(self, task: asyncio.Future[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _undone(task: asyncio.Future[Any], undo: Callable[[], Awaitable[None]]) -> None:
    try:
        await task
    except Exception:  # any error: nothing was done, and its caller is gone
        return
    await undo()
