"""Watches the goroutines of processes while a page shows them, or all the time."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import in_one_line, printable
from ebpfprof.errors import EbpfprofError, NotGoProgram
from ebpfprof.goruntime.waits.watch import GoroutineWatch, WatchedGoroutines

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcesses

READ_S: Final = 30.0
"""For how long after a request samples are frequent."""
LEASE_S: Final = 600.0
"""For how long after a request there are samples at all, so that a leak is not forgotten."""
CHECK_S: Final = 0.25
"""How often it is checked which samples are due."""
_QUICK: Final = (1.25, 30.0)  # the seconds between two samples, and between two of all stacks
_SLOW: Final = (10.0, 60.0)
_FIRST_SAMPLES: Final = 12  # these are frequent: what hangs is found after some samples
_RETRY_S: Final = 30.0
_NOTHING: Final = WatchedGoroutines(0, 0, (), (), ())


@dataclass(eq=False, slots=True)
class _Watched:
    """One process. `sampled_s` is Unix time, all others CLOCK_MONOTONIC.

    `read_s` is the last request for all of it, `wanted_s` the last of any kind.
    """

    read_s: float = float("-inf")
    wanted_s: float = float("-inf")
    due_s: float = 0.0
    samples: int = 0
    sampled_s: float = 0.0
    problem: str = ""
    watch: GoroutineWatch | None = None
    held: ExitStack = field(default_factory=ExitStack)


class GoroutineWatches:
    """The watches of the processes of a manager. Belongs to its event loop.

    A process is watched after a request for it, and all the time if the manager records all the
    time. Samples are taken one after the other: together they take a few hundredths of a processor
    at most. A process that is not watched takes no memory or time.
    """

    def __init__(self, manager: Manager, processes: OpenProcesses) -> None:
        self._manager, self._processes = manager, processes
        self._watched: dict[RecordedProcess, _Watched] = {}

    def read(self, process: RecordedProcess) -> tuple[WatchedGoroutines, float, str]:
        """What is known of a process now, when it was sampled (Unix time), and why it can't be.

        The process is watched for some time from now on.
        """
        watched = self._watched.setdefault(process, _Watched())
        now_s = time.monotonic()
        if now_s - watched.read_s > READ_S:
            watched.due_s = min(watched.due_s, now_s + _QUICK[0])
        watched.read_s = watched.wanted_s = now_s
        found = watched.watch.found if watched.watch else _NOTHING
        return found, watched.sampled_s, watched.problem

    def glance(self, process: RecordedProcess) -> WatchedGoroutines | None:
        """What is known of a process now; it is watched for some time, with samples now and then.

        None before the first sample, or if it can't be read.
        """
        self._watched.setdefault(process, _Watched()).wanted_s = time.monotonic()
        return self.known(process)

    def known(self, process: RecordedProcess) -> WatchedGoroutines | None:
        """The same of a process that is watched, without prolonging that; None of any other."""
        watched = self._watched.get(process)
        is_known = watched and watched.watch and watched.sampled_s and not watched.problem
        return watched.watch.found if is_known and watched and watched.watch else None

    async def run(self) -> None:
        """Take samples when they are due, until the manager stops; then close all."""
        stopping = self._manager.stopping
        while not stopping.is_set():
            await self._sample_all()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), CHECK_S)
        for watched in self._watched.values():
            watched.held.close()
        self._watched.clear()

    async def _sample_all(self) -> None:
        now_s, processes = time.monotonic(), self._manager.processes
        if self._manager.continuous:
            for process in processes:
                self._watched.setdefault(process, _Watched())
        kept = set(processes)
        for process, watched in list(self._watched.items()):
            is_wanted = self._manager.continuous or now_s - watched.wanted_s < LEASE_S
            if process not in kept or process.ending is not None or not is_wanted:
                del self._watched[process]
                await asyncio.to_thread(watched.held.close)
            elif now_s >= watched.due_s and not self._manager.stopping.is_set():
                await asyncio.to_thread(self._sample, process, watched)

    def _sample(self, process: RecordedProcess, watched: _Watched) -> None:
        is_quick = watched.samples < _FIRST_SAMPLES or time.monotonic() - watched.read_s < READ_S
        interval_s, full_every_s = _QUICK if is_quick else _SLOW
        try:
            if watched.watch is None:
                watched.watch = self._opened(process.pid, watched.held)
            wait_s = watched.watch.sample(interval_s=interval_s, full_every_s=full_every_s)
            watched.sampled_s, watched.problem = time.time(), ""
            watched.samples += 1
        except EbpfprofError as error:
            watched.held.close()
            watched.watch, wait_s = None, _RETRY_S
            is_known = isinstance(error, NotGoProgram)  # the page shows no goroutines of it
            watched.problem = "" if is_known else printable(in_one_line(str(error)))
        watched.due_s = time.monotonic() + wait_s

    def _opened(self, pid: int, held: ExitStack) -> GoroutineWatch:
        return GoroutineWatch(held.enter_context(self._processes.open(pid)).go())
