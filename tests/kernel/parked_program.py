"""The target `parked`: what its goroutines do, and how to change its memory."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ebpfprof.goruntime.goroutines.parked import (
    ParkedGoroutine,
    ParkedGoroutines,
    parked_goroutines,
)
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.memory import Memory
from ebpfprof.process.process import Target as Process
from symbolizer.codeanalysis.globals import allgs_address
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

# Names of wait reasons by the words that Go's traceback has for them.
WAIT_REASONS = {
    "chan receive": "ChanReceive",
    "chan send": "ChanSend",
    "select": "Select",
    "semacquire": "Semacquire",
    "sync.Cond.Wait": "SyncCondWait",
    "sync.Mutex.Lock": "SyncMutexLock",
    "sync.RWMutex.Lock": "SyncRWMutexLock",
    "sync.RWMutex.RLock": "SyncRWMutexRLock",
    "sync.WaitGroup.Wait": "SyncWaitGroupWait",
}


@dataclass(frozen=True)
class Running:
    """The target `parked`, with all its goroutines parked, and what it says of them."""

    target: Target
    go: GoTarget
    reports: dict[str, dict[str, Any]]
    known: dict[int, list[str]] = field(default_factory=dict)

    def names(self, goroutine: ParkedGoroutine) -> list[str]:
        """The functions of a stack, innermost first; all of them."""
        for pc in goroutine.return_pcs:
            if pc not in self.known:
                frames = self.go.binary.frames(pc - 1 - self.go.load_bias)
                self.known[pc] = [frame.function for frame in frames]
        return [name for pc in goroutine.return_pcs for name in self.known[pc]]

    def one(self, operation: str) -> ParkedGoroutine:
        """A goroutine in this operation."""
        goids = self.reports[operation]["goids"]
        return next(
            goroutine
            for goroutine in parked_goroutines(self.go).goroutines
            if goroutine.goid in goids
        )


@contextmanager
def running(minor: str, mode: str, *arguments: str) -> Iterator[Running]:
    path = program("parked", minor, mode)
    with Target.start(path, *arguments, env={"GOGC": "off"}) as target, Process(target.pid) as own:
        yield Running(target, inspect(own), json.loads(target.output[0]))


# By goroutine: the innermost function of package main, the reason, the semaphore.
Facts = dict[int, tuple[str, str, int]]


def expected(run: Running) -> Facts:
    return {
        goid: (name, WAIT_REASONS[report["state"]], report["sema"])
        for name, report in run.reports.items()
        if not name.startswith("silent")
        for goid in report["goids"]
    }


def facts(run: Running, parked: ParkedGoroutines) -> Facts:
    """What was found, less the goroutines of the runtime's own and those of -busy."""
    found: Facts = {}
    for goroutine in parked.goroutines:
        ours = [name[5:] for name in run.names(goroutine) if name.startswith("main.")]
        if ours and not ours[0].startswith("startBusy."):
            assert goroutine.goid not in found
            found[goroutine.goid] = (ours[0], goroutine.wait_reason, goroutine.sema)
    return found


def all_goroutines(run: Running, memory: Memory) -> list[int]:
    """The addresses of all runtime.g."""
    allgs = allgs_address(run.go.binary) + run.go.load_bias
    return [word(memory, word(memory, allgs) + 8 * i) for i in range(word(memory, allgs + 8))]


def word(memory: Memory, address: int) -> int:
    (value,) = struct.unpack("<Q", memory.read(address, 8))
    return int(value)


def poke(pid: int, address: int, value: int) -> None:
    """Write a word to a target of ours that is killed afterwards."""
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        os.pwrite(memory.fileno(), struct.pack("<Q", value), address)
