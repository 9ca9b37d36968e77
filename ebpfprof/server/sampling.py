"""Samples processes regularly, while clients ask for them or all the time."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ebpfprof.console.text import in_one_line, printable
from ebpfprof.errors import EbpfprofError, NotGoProgram

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcess, OpenProcesses

LEASE_S: Final = 600.0
"""For how long after a request there are samples, so that what was seen is not forgotten."""
CHECK_S: Final = 0.25
"""How often it is checked which samples are due."""
_RETRY_S: Final = 30.0
_Reader = TypeVar("_Reader")


@dataclass(eq=False, slots=True)
class Sampled(Generic[_Reader]):
    """One process. `sampled_s` is Unix time, all others CLOCK_MONOTONIC.

    `read_s` is the last request for all of it, `wanted_s` the last of any kind. `problem` is why it
    can't be read, a sentence. `reader` is there while it is open.
    """

    read_s: float = float("-inf")
    wanted_s: float = float("-inf")
    due_s: float = 0.0
    samples: int = 0
    sampled_s: float = 0.0
    problem: str = ""
    reader: _Reader | None = None
    held: ExitStack = field(default_factory=ExitStack)


class RegularSamples(ABC, Generic[_Reader]):
    """Samples of the processes of a manager. Belongs to its event loop.

    A process is sampled after a request for it, and all the time if the manager records all the
    time. It has one reader, whatever the number of clients. Samples are taken one after the other.
    A process that is not sampled takes no time.
    """

    def __init__(self, manager: Manager, processes: OpenProcesses) -> None:
        self._manager, self._processes = manager, processes
        self._sampled: dict[RecordedProcess, Sampled[_Reader]] = {}

    @abstractmethod
    def _open(self, process: OpenProcess) -> _Reader:
        """A reader of a process. Raises any of ebpfprof.errors; NotGoProgram is no problem."""

    @abstractmethod
    def _take(self, process: RecordedProcess, sampled: Sampled[_Reader], reader: _Reader) -> float:
        """Take a sample; returns the seconds to the next one. Raises any of ebpfprof.errors."""

    def _of(self, process: RecordedProcess) -> Sampled[_Reader]:
        """What is known of a process, which is sampled for some time from now on."""
        sampled = self._sampled.setdefault(process, Sampled())
        sampled.wanted_s = time.monotonic()
        return sampled

    async def run(self) -> None:
        """Take samples when they are due, until the manager stops; then close all."""
        stopping = self._manager.stopping
        while not stopping.is_set():
            await self._sample_all()
            with suppress(TimeoutError):  # not stopping: the next samples are due
                await asyncio.wait_for(stopping.wait(), CHECK_S)
        for sampled in self._sampled.values():
            sampled.held.close()
        self._sampled.clear()

    async def _sample_all(self) -> None:
        now_s, processes = time.monotonic(), self._manager.processes
        if self._manager.continuous:
            for process in processes:
                self._sampled.setdefault(process, Sampled())
        kept = set(processes)
        for process, sampled in list(self._sampled.items()):
            is_wanted = self._manager.continuous or now_s - sampled.wanted_s < LEASE_S
            if process not in kept or process.ending is not None or not is_wanted:
                del self._sampled[process]
                await asyncio.to_thread(sampled.held.close)
            elif now_s >= sampled.due_s and not self._manager.stopping.is_set():
                await asyncio.to_thread(self._sample, process, sampled)

    def _sample(self, process: RecordedProcess, sampled: Sampled[_Reader]) -> None:
        try:
            reader = sampled.reader
            if reader is None:
                opened = sampled.held.enter_context(self._processes.open(process.pid))
                sampled.reader = reader = self._open(opened)
            wait_s = self._take(process, sampled, reader)
            sampled.sampled_s, sampled.problem = time.time(), ""
            sampled.samples += 1
        except EbpfprofError as error:
            sampled.held.close()
            sampled.reader, wait_s = None, _RETRY_S
            is_known = isinstance(error, NotGoProgram)  # the page shows no goroutines of it
            sampled.problem = "" if is_known else printable(in_one_line(str(error)))
        sampled.due_s = time.monotonic() + wait_s
