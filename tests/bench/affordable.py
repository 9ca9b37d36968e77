"""How many waits a second a limit of 1 % affords: what a wait costs, and how waits are recorded."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import Final

from tests.bench.costresults import WaitCost, Ways
from tests.bench.liverecorder import LiveRecorder, cpu_ns
from tests.bench.workloads import PACED, WORKLOADS, Running, Workload

BARE_S: Final = 1.0
# One in eight has the probes of runs in the first of eight seconds (budgeted_waits.py).
ROUND_S: Final = {"every wait": 1.0, "one in eight": 8.0}
OPTIONS: Final[dict[str, dict[str, int]]] = {
    "every wait": {},
    "one in eight": {"one_in_eight": 1, "max_overhead": 100},
}
# Without frames and goroutines that differ, what a wait costs hardly differs either.
COSTED: Final = ("pingpong", "mutex", "pool", "http")
RATES: Final = (2_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 60_000)
_SECOND_NS: Final = 1_000_000_000


def wait_costs(rounds: int) -> tuple[WaitCost, ...]:
    """What a recorded wait costs, of each workload and way to record: the median of rounds."""
    found = []
    with ExitStack() as held:
        for name, options in OPTIONS.items():
            ours = LiveRecorder(held, kinds=("block",), **options)
            found += [
                _wait_cost(ours, workload, name, rounds)
                for workload in WORKLOADS
                if workload.name in COSTED
            ]
    return tuple(found)


def _wait_cost(ours: LiveRecorder, workload: Workload, recorder: str, rounds: int) -> WaitCost:
    costs, reported = [], []
    with ExitStack() as held:
        running = Running(workload, held)
        pid = running.target.pid
        ours.order("add", pid)
        bare_units = running.units_in(BARE_S)
        ours.order("start", pid)
        units = running.units_in(ROUND_S[recorder])
        ours.order("stop", pid)
        for _ in range(rounds):
            bare_ns = _used_ns(running, bare_units) / bare_units
            ours.order("start", pid)
            (before, *_), (spent_ns, _) = ours.order("events", pid), ours.order("cost", pid)
            with_us_ns = _used_ns(running, units)
            ours.order("stop", pid)
            (after, *_), (spent_later_ns, _) = ours.order("events", pid), ours.order("cost", pid)
            waits = after - before
            costs.append((with_us_ns - units * bare_ns) / waits)
            reported.append((spent_later_ns - spent_ns) / waits)
    return WaitCost(workload.title, recorder, median(costs), median(reported))


def _used_ns(running: Running, units: int) -> int:
    """The CPU time of the target for so many units; of a server, without that of its client."""
    before_ns = cpu_ns(running.target.pid)
    running.round(units)
    return cpu_ns(running.target.pid) - before_ns


def ways(seconds: float) -> tuple[Ways, ...]:
    """How a program is recorded within 1 % for so long, at each rate of waits."""
    with ExitStack() as held:
        ours = LiveRecorder(held, kinds=("block",), max_overhead=1)
        return tuple(_ways(ours, rate, seconds) for rate in RATES)


def _ways(ours: LiveRecorder, rate: int, seconds: float) -> Ways:
    with ExitStack() as held:
        running = Running(PACED, held)
        pid = running.target.pid
        work = _SECOND_NS // rate
        units = running.units_in(seconds, work=work)
        ours.order("add", pid)
        ours.order("start", pid)
        took = running.round(units, work=work)
        ours.order("stop", pid)
        (waits, *_), (spent_ns, used_ns) = ours.order("events", pid), ours.order("cost", pid)
        every_ns, eighth_ns, windows_ns, windows = ours.order("ways", pid)
        return Ways(
            rate=waits * _SECOND_NS / took.wall_ns,
            every=every_ns / took.wall_ns,
            eighth=eighth_ns / took.wall_ns,
            windowed=windows_ns / took.wall_ns,
            windows=windows,
            overhead=spent_ns / used_ns,
        )
