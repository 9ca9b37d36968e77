"""New Go processes, found while the server runs (--all-go), and what is known of all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ebpfprof.console.terminal import say
from ebpfprof.continuous.manager import Recorder
from ebpfprof.discovery.processes import GoProcess, ProcessTable, not_answered

LOOK_S = 3.0
"""How often it is looked for new processes, in seconds."""
_FRESH_S = 0.5


class Discovery:
    """Looks through the processes of this machine.

    With `follows`, all Go processes that are supported are served as they come, in `containers`
    (beginnings of ids) only if some are given, and no more than `capacity` at a time.
    """

    def __init__(
        self,
        recorder: Recorder,
        table: ProcessTable,
        *,
        follows: bool = False,
        containers: Sequence[str] = (),
        capacity: int = 64,
    ) -> None:
        self._recorder = recorder
        self._follows = follows
        self._containers = tuple(containers)
        self._capacity = capacity
        self._table = table
        self._unanswered: tuple[int, ...] = ()
        self._lock = asyncio.Lock()
        self._looked_s = -_FRESH_S
        self.processes: dict[int, GoProcess] = {}
        """The Go processes as of the last look, by pid."""

    @property
    def unserved(self) -> list[GoProcess]:
        """Go processes that would be served if they could; `why_not` says why they can't."""
        if not self._follows:
            return []
        served = {each.pid for each in self._recorder.served}
        return [
            each for each in self.processes.values() if each.pid not in served and self._fits(each)
        ]

    async def look(self) -> None:
        """Look once, unless somebody just has."""
        async with self._lock:
            if time.monotonic() - self._looked_s >= _FRESH_S:
                survey = await asyncio.to_thread(self._table.survey)
                self._take(survey.go)
                self._tell(survey.unanswered)
                self._looked_s = time.monotonic()

    def _tell(self, unanswered: tuple[int, ...]) -> None:
        new = [pid for pid in unanswered if pid not in self._unanswered]
        if new:
            say(f"ebpfprof: {not_answered(new)}", err=True)
        self._unanswered = unanswered

    def _take(self, found: Iterable[GoProcess]) -> None:
        self.processes = {each.pid: each for each in found}
        for served in self._recorder.served:
            if served.about is None:
                served.about = self.processes.get(served.pid)
        if self._follows:
            self._follow()

    async def run(self) -> None:
        """Look every few seconds until the server ends, if there is something to follow."""
        stopping = self._recorder.stopping
        while self._follows and not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), LOOK_S)
                return
            await self.look()

    def _follow(self) -> None:
        recorder = self._recorder
        for served in recorder.served:
            # Of those that were opened the recorder notices itself that they went.
            if served.live is None and served.pid not in self.processes:
                recorder.note_ending(served, f"process {served.pid} ended")
        room = self._capacity - sum(each.ending is None for each in recorder.served)
        for process in self.processes.values():
            known = recorder.find(process.pid)
            is_new = known is None or known.ending is not None
            if is_new and process.supported and self._fits(process) and room > 0:
                recorder.serve_found(process)
                room -= 1

    def _fits(self, process: GoProcess) -> bool:
        return not self._containers or bool(
            process.container and process.container.startswith(self._containers)
        )
