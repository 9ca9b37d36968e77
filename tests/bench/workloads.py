"""What the costs are measured on: programs that block, each a fixed amount of work a round."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tests.targets_run import Target
from tests.toolchains import MINORS, toolchain

SOURCE: Final = Path(__file__).parent.parent / "targets" / "workloads"
_FEW_UNITS: Final = 200
_LONG_ENOUGH: Final = 0.2  # of a round, to show how many units one takes


@dataclass(frozen=True)
class Workload:
    """One kind of work of tests/targets/workloads; a unit of it is `unit`.

    With `served`, the program is a server, and a second process of it the client. Where rounds
    differ so much that one hundredth does not show in few, there are `times_the_rounds` as many
    long ones.
    """

    name: str
    title: str
    unit: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    served: bool = False
    times_the_rounds: int = 1


WORKLOADS: Final = (
    Workload("pingpong", "ping-pong", "one send over an unbuffered channel", times_the_rounds=5),
    Workload(
        "buffered", "buffered channel", "one send, 64 fit into the channel", times_the_rounds=3
    ),
    Workload(
        "mutex",
        "contended mutex",
        "one Lock and Unlock, six goroutines",
        {"procs": 1},
        times_the_rounds=3,
    ),
    Workload("rwmutex", "RWMutex", "one operation, 19 of 20 only read"),
    Workload("pool", "worker pool", "one job, by way of three selects", times_the_rounds=3),
    Workload("http", "HTTP server", "one request, 16 connections", served=True, times_the_rounds=5),
    Workload(
        "garbage", "garbage", "one goroutine whose stack grows, with garbage", times_the_rounds=3
    ),
)
# What is hard for a profiler that records one stop in eight of each goroutine.
PATTERNS: Final = (
    Workload("bursts", "bursts", "one Lock and Unlock, in ten bursts", {"procs": 1}),
    Workload("turns", "regular turns of one", "one wait, at two places in turn"),
    Workload("turns", "regular turns of 16", "one wait, at two places in turn", {"goroutines": 32}),
    Workload("oneshots", "one wait each", "one goroutine that waits once"),
    Workload("systemcalls", "system calls", "one wait and three system calls", {"goroutines": 8}),
    Workload("yielding", "Gosched loops", "one wait and twenty yields", {"goroutines": 8}),
)
PACED: Final = Workload("paced", "paced", "one send over an unbuffered channel", {"procs": 1})
"""Works before each send, for the parameter `work` (ns): so it waits as often as one wants."""


@dataclass(frozen=True)
class Took:
    """What a round took: from its begin to its end, and of the processors (of the server's, both
    in nanoseconds)."""

    wall_ns: int
    cpu_ns: int


@cache
def program(minor: str = MINORS[-1]) -> Path:
    """The program of all workloads, of a Go version."""
    return toolchain(minor).build(SOURCE)


class Running:
    """A workload's process, and its client where it has one."""

    def __init__(self, workload: Workload, held: ExitStack, minor: str = MINORS[-1]) -> None:
        """Start it; it ends with `held`."""
        self.workload = workload
        self.target = held.enter_context(Target.start(program(minor)))
        self._asked, self._order = self.target, f"go {workload.name}"
        if workload.served:
            address = self.target.ask("serve", "address ").split()[1]
            self._asked = held.enter_context(Target.start(program()))
            self._order = f"load {address}"

    def round(self, units: int, **parameters: int) -> Took:
        """Do that many units of work; a workload's own parameters may change that."""
        words = [self._order, str(units)]
        if not self.workload.served:
            reported = {**self.workload.parameters, **parameters}
            words += [f"{name}={value}" for name, value in reported.items()]
        _, wall, _, cpu = self._asked.ask(" ".join(words), "ns ").split()
        return Took(int(wall), int(cpu))

    def units_in(self, seconds: float, **parameters: int) -> int:
        """How many units take so long, by trying; warms up."""
        units, wall_ns = _FEW_UNITS, 0
        while (wall_ns := self.round(units, **parameters).wall_ns) < _LONG_ENOUGH * seconds * 1e9:
            units *= 2
        return max(1, round(units * seconds * 1e9 / wall_ns))
