"""How the cost of one block event grows, and what of it our BPF programs take."""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack
from statistics import median
from typing import Final

from ebpfprof.kernel import probe_cost
from ebpfprof.kernel.uprobes import own_probe
from tests.bench.bpfparts import parts_ns
from tests.bench.bpfstats import counting_runs, runs_by_program, runs_of
from tests.bench.costresults import BpfRun, Curve
from tests.bench.liverecorder import LiveRecorder
from tests.bench.workloads import WORKLOADS, Running

ROUND_S: Final = 0.15
PINGPONG: Final = WORKLOADS[0]
# On one processor, where all is done one after the other, but for what grows with processors.
AXES: Final[tuple[tuple[str, str, tuple[int, ...], dict[str, int]], ...]] = (
    ("frames of the stack", "frames", (5, 7, 10, 20, 40, 80, 128), {}),
    ("goroutines", "goroutines", (2, 10, 100, 1_000, 10_000), {}),
    # More pairs than processors: those that have nothing to do look for work, which costs, too.
    ("GOMAXPROCS", "procs", (1, 2, 4, 8, 16), {"goroutines": 32}),
    ("distinct stacks", "stacks", (2, 10, 100, 1_000, 10_000), {}),
)
FRAMES: Final = (5, 10, 30, 100)
NOTHING: Final = "a program that does nothing"
PASSES: Final = 100_000
SAMPLINGS: Final = {"all": 1, "rate 10,000": 10_000, "none is kept": 3_600_000_000_000}


def curves(rounds: int) -> tuple[Curve, ...]:
    """What the processors spend on an event, in ns, beyond what they spend without us."""
    with ExitStack() as held:
        ours = LiveRecorder(held, kinds=("block",))
        found = []
        for title, name, values, others in AXES:
            points = [(float(x), _event_ns(ours, {**others, name: x}, rounds)) for x in values]
            found.append(Curve(title, tuple(points)))
        return tuple(found)


def _event_ns(ours: LiveRecorder, parameters: dict[str, int], rounds: int) -> float:
    """The median over rounds, each beside one without us."""
    given = {"procs": 1, **parameters}
    with ExitStack() as held:
        running = Running(PINGPONG, held)
        pid = running.target.pid
        ours.order("add", pid)
        ours.order("start", pid)
        units = running.units_in(ROUND_S, **given)
        ours.order("stop", pid)
        (before, *_), costs = ours.order("events", pid), []
        for _ in range(rounds):
            bare_ns = running.round(units, **given).cpu_ns
            ours.order("start", pid)
            with_us_ns = running.round(units, **given).cpu_ns
            ours.order("stop", pid)
            after, *_ = ours.order("events", pid)
            costs.append((with_us_ns - bare_ns) / (after - before))
            before = after
        return median(costs)


def bpf_runs() -> tuple[BpfRun, ...]:
    """What the kernel measures of each of our programs (bpf_stats), by depth of the stacks."""
    found = [BpfRun(NOTHING, "", FRAMES[0], _nothing_ns())]
    found += [BpfRun(part, "", FRAMES[0], ns) for part, ns in parts_ns().items()]
    with ExitStack() as held:
        for sampling, rate_ns in SAMPLINGS.items():
            # Called by another program, the kernel would measure them together.
            ours = LiveRecorder(held, kinds=("block",), block_rate_ns=rate_ns, dispatches=False)
            for frames in FRAMES:
                running = Running(PINGPONG, held)
                pid = running.target.pid
                ours.order("add", pid)
                ours.order("start", pid)
                units = running.units_in(ROUND_S, procs=1, frames=frames)
                with counting_runs():
                    before = runs_by_program(ours.pid)
                    running.round(3 * units, procs=1, frames=frames)
                    runs = runs_by_program(ours.pid)
                ours.order("stop", pid)
                for program, run in runs.items():
                    done = run - before[program]
                    if done.count > units:
                        found.append(BpfRun(program, sampling, frames, done.time_ns / done.count))
    return tuple(found)


def _nothing_ns() -> float:
    """What the kernel measures of a program that does nothing: what measuring takes."""
    with (
        probe_cost._code(probe_cost._LOOP) as (path, address),
        own_probe(path, probe_cost._NOP_OFFSET, runs_program=True),
        counting_runs(),
    ):
        ctypes.CFUNCTYPE(None, ctypes.c_long)(address)(PASSES)
        runs = runs_of(os.getpid())
    return runs.time_ns / runs.count
