"""Go processes that start while others are recorded, and what surveys know of all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ebpfprof.console.terminal import say
from ebpfprof.discovery.processes import GoProcess, ProcessTable, not_answered

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager

SURVEY_S = 3.0
"""How often the machine is surveyed for new processes, in seconds."""
_FRESH_S = 0.5


class Follower:
    """Surveys the processes of this machine for a manager.

    With `follows`, all supported Go processes are added to the manager as they start: if
    `containers` (beginnings of ids) are given, those in them, and at most `capacity` at a time.
    """

    def __init__(
        self,
        manager: Manager,
        table: ProcessTable,
        *,
        follows: bool = False,
        containers: Sequence[str] = (),
        capacity: int = 64,
    ) -> None:
        self._manager = manager
        self._table = table
        self._follows = follows
        self._containers = tuple(containers)
        self._capacity = capacity
        self._unanswered: tuple[int, ...] = ()
        self._lock = asyncio.Lock()
        self._surveyed_s = -_FRESH_S
        self.processes: dict[int, GoProcess] = {}
        """The Go processes as of the last survey, by pid."""

    @property
    def unrecorded(self) -> list[GoProcess]:
        """Go processes that would be added if they could; `why_not` says why they can't."""
        if not self._follows:
            return []
        added = {process.pid for process in self._manager.processes}
        return [p for p in self.processes.values() if p.pid not in added and self._fits(p)]

    async def survey(self) -> None:
        """Survey the machine once, unless that was done just now."""
        async with self._lock:
            if time.monotonic() - self._surveyed_s >= _FRESH_S:
                survey = await asyncio.to_thread(self._table.survey)
                self._note(survey.go)
                self._notify(survey.unanswered)
                self._surveyed_s = time.monotonic()

    async def run(self) -> None:
        """Survey the machine every SURVEY_S until the manager stops, if there is use for it."""
        stopping = self._manager.stopping
        while self._follows and not stopping.is_set():
            with suppress(TimeoutError):  # not stopping: the next survey is due
                await asyncio.wait_for(stopping.wait(), SURVEY_S)
                return
            await self.survey()

    def _note(self, processes: Iterable[GoProcess]) -> None:
        self.processes = {process.pid: process for process in processes}
        for process in self._manager.processes:
            if process.about is None:
                process.about = self.processes.get(process.pid)
        if self._follows:
            self._follow()

    def _notify(self, unanswered: tuple[int, ...]) -> None:
        """Say which processes are left out, once, if any would be followed."""
        if not self._follows:
            return
        new = [pid for pid in unanswered if pid not in self._unanswered]
        if new:
            say(f"ebpfprof: {not_answered(new)}", err=True)
        self._unanswered = unanswered

    def _follow(self) -> None:
        manager = self._manager
        for process in manager.processes:
            # The manager itself notices the end of those that were opened.
            if process.target is None and process.pid not in self.processes:
                manager.note_ending(process, f"process {process.pid} ended")
        room = self._capacity - sum(process.ending is None for process in manager.processes)
        for about in self.processes.values():
            known = manager.find(about.pid)
            is_new = known is None or known.ending is not None
            if is_new and about.supported and self._fits(about) and room > 0:
                manager.add_found(about)
                room -= 1

    def _fits(self, about: GoProcess) -> bool:
        return not self._containers or bool(
            about.container and about.container.startswith(self._containers)
        )
