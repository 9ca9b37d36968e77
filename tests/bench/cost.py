"""What profiling costs: every kind of blocking under every profiler, in one run, as ratios.

    python -m tests.bench.cost [--quick] [--workloads A,B] [--arms A,B] [--rounds N] [--write]
    python -m tests.bench.cost --one-in-eight [--quick] [--write]

Each round with a profiler stands between two without one (tests/bench/pairs), each does as much
work as takes a quarter of a second, one second where there is a bound on what it may cost, and the
profilers take turns in a random order. A cost is the median of what each round took against the two
beside it, and the interval in which 95 of 100 such runs would come out. Everything runs at the
highest priority, so that other programs on the machine count for less; the target, the profiler
and, of the server, the client share the processors.

Prints tables in Markdown. With --write they go to docs/performance.md and docs/costs.md, pictures
to docs/images, all numbers to tests/bench/cost.json, where parts that --parts leaves out stay as
they were; --redraw does that with the numbers of the last run. --one-in-eight measures only what
the tables of one wait in eight have, and writes only these, and tests/bench/eighth.json. The exit
status is 1 if a promise was broken (tests/bench/costresults).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from tests.bench import accuracy, affordable, growth
from tests.bench.arms import ARMS, Arm, Profiler
from tests.bench.costdocs import EIGHTH_ARMS, as_text, write_docs, write_eighth
from tests.bench.costresults import (
    EIGHTH_FILE,
    FIELDS_OF_PARTS,
    FILE,
    Accuracy,
    BpfRun,
    Cost,
    Curve,
    Machine,
    Measured,
    Results,
    WaitCost,
    Ways,
    verdicts,
)
from tests.bench.pairs import Pair, in_pairs, schedule, times_bare
from tests.bench.workloads import WORKLOADS, Running, Workload
from tests.toolchains import MINORS, toolchain

HIGHEST: Final = -20
SETTLING_S: Final = 0.5
ROUNDS: Final = 12
QUICK_ROUNDS: Final = 3
# Options of the command, by the name of the arm.
ACCURACY_ARMS: Final = {
    "block": ("--profile", "block", "--max-overhead", "0"),
    "eighth": ("--profile", "block", "--one-in-eight"),
    "bounded-all": ("--profile", "block,mutex,cpu", "--max-overhead", "1"),
}
ACCURACY_S: Final = {
    "block": 20.0,
    "eighth": 20.0,
    "bounded-all": 90.0,
}  # chance takes part in the second
QUICK_ACCURACY_S: Final = 2.0
GROWTH_ROUNDS: Final = 7
WAIT_COST_ROUNDS: Final = 3
WAYS_S: Final = 10.0
QUICK_WAYS_S: Final = 3.0
LONG_ROUND_S: Final = 1.0  # those of profilers with a bound
PARTS: Final = tuple(FIELDS_OF_PARTS)
EIGHTH_PARTS: Final = ("costs", "waits")


def costs_on(workload: Workload, profilers: Mapping[Arm, Profiler], rounds: int) -> Measured:
    """What each profiler costs on a workload, by that many rounds each."""
    with ExitStack() as held:
        running = Running(workload, held)
        for profiler in profilers.values():
            profiler.learn(running)
        bare, costs = [], {}
        for alike in sorted({(arm.round_s, arm.turns) for arm in profilers}):
            some = {arm: profilers[arm] for arm in profilers if (arm.round_s, arm.turns) == alike}
            round_s, turns = alike
            times = workload.times_the_rounds if round_s >= LONG_ROUND_S else 1
            bare_ns, pairs, own = take_turns(running, some, rounds * turns * times, round_s)
            bare += bare_ns
            for arm, found in pairs.items():
                unit_ns = median(pair.measured for pair in found)
                costs[arm.name] = Cost(times_bare(found), unit_ns, len(found), own[arm])
    low, middle, high = quantiles(bare, n=4)
    return Measured(workload.title, workload.unit, middle, low, high, costs)


def take_turns(
    running: Running, profilers: Mapping[Arm, Profiler], rounds: int, round_s: float
) -> tuple[list[float], dict[Arm, list[Pair]], dict[Arm, float]]:
    """Rounds of that many seconds, with each profiler and in between without: ns a unit.

    Of each profiler also which part of a processor its own processes took while it was measured.
    """
    bare_units, units = running.units_in(round_s), {}
    for arm, profiler in profilers.items():
        profiler.on(running)
        units[arm] = running.units_in(round_s)
        profiler.off(running)

    def unit_ns(units: int) -> float:
        return running.round(units).wall_ns / units

    turns = list(islice(schedule(list(profilers), random.Random()), rounds * len(profilers)))
    measured, bare = [], [unit_ns(bare_units)]
    own_ns, wall_ns = dict.fromkeys(profilers, 0), dict.fromkeys(profilers, 0)
    for arm in turns:
        profilers[arm].on(running)
        if arm.settles:
            unit_ns(int(units[arm] * SETTLING_S / round_s))
        before_ns = profilers[arm].own_ns()
        took = running.round(units[arm])
        own_ns[arm] += profilers[arm].own_ns() - before_ns
        wall_ns[arm] += took.wall_ns
        measured.append(took.wall_ns / units[arm])
        profilers[arm].off(running)
        bare.append(unit_ns(bare_units))
    pairs: dict[Arm, list[Pair]] = {arm: [] for arm in profilers}
    for arm, pair in zip(turns, in_pairs(bare, measured), strict=True):
        pairs[arm].append(pair)
    return bare, pairs, {arm: own_ns[arm] / wall_ns[arm] for arm in profilers}


def accuracies(
    workload: Workload, arms: Sequence[str], seconds: Mapping[str, float]
) -> dict[str, Accuracy]:
    """How exact our block profiles of a workload are, by arm, after that many seconds of each."""
    return {
        arm: accuracy.beside_go(workload, options, seconds[arm])
        for arm, options in ACCURACY_ARMS.items()
        if arm in arms
    }


class OthersTime:
    """The parts of the processors that went to programs of low priority and to other guests."""

    def __init__(self) -> None:
        self._before = self._read()

    def parts(self) -> tuple[float, float]:
        """Since it was made: niced, stolen."""
        spent = [now - before for now, before in zip(self._read(), self._before, strict=True)]
        whole = sum(spent) or 1
        return spent[1] / whole, spent[7] / whole

    @staticmethod
    def _read() -> list[int]:
        # user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5))
        return [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]


def machine(others: OthersTime) -> Machine:
    """This one, now."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    niced, stolen = others.parts()
    return Machine(
        date=datetime.now(UTC).date().isoformat(),
        processor=names[0],
        cpus=len(names),
        kernel=".".join(os.uname().release.split(".")[:2]),
        go=toolchain(MINORS[-1]).version,
        niced=niced,
        stolen=stolen,
    )


def chosen(names: str | None, known: Sequence[str], what: str) -> list[str]:
    """Those of a list with commas, or all. Raises SystemExit."""
    wanted = names.split(",") if names else list(known)
    for name in wanted:
        if name not in known:
            raise SystemExit(f"There is no {what} {name}; there are: {', '.join(known)}.")
    return wanted


def measure(arguments: argparse.Namespace) -> Results:
    """All that was asked for."""
    is_eighth = arguments.one_in_eight
    parts = chosen(arguments.parts, EIGHTH_PARTS if is_eighth else PARTS, "part")
    wanted = chosen(arguments.workloads, [each.name for each in WORKLOADS], "workload")
    arms = chosen(arguments.arms, EIGHTH_ARMS if is_eighth else [arm.name for arm in ARMS], "arm")
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    seconds = dict.fromkeys(ACCURACY_ARMS, QUICK_ACCURACY_S) if arguments.quick else ACCURACY_S
    others = OthersTime()
    workloads = [workload for workload in WORKLOADS if workload.name in wanted]
    found: dict[str, Measured] = {}
    exact: dict[str, dict[str, Accuracy]] = {}
    curves: tuple[Curve, ...] = ()
    bpf: tuple[BpfRun, ...] = ()
    wait_costs: tuple[WaitCost, ...] = ()
    ways: tuple[Ways, ...] = ()
    if "costs" in parts:
        with ExitStack() as held:
            loaded = [(arm, arm.make(held)) for arm in ARMS if arm.name in arms]
            for workload in workloads:
                say(f"costs: {workload.title}")
                here = {arm: made for arm, made in loaded if arm.is_for(workload.name)}
                found[workload.name] = costs_on(workload, here, rounds)
    if "accuracy" in parts:
        for workload in workloads:
            say(f"accuracy: {workload.title}")
            exact[workload.title] = accuracies(workload, arms, seconds)
    if "growth" in parts:
        say("growth")
        curves = growth.curves(1 if arguments.quick else GROWTH_ROUNDS)
    if "bpf" in parts:
        say("BPF programs")
        bpf = growth.bpf_runs()
    if "waits" in parts:
        say("waits that 1 % affords")
        wait_costs = affordable.wait_costs(1 if arguments.quick else WAIT_COST_ROUNDS)
        ways = affordable.ways(QUICK_WAYS_S if arguments.quick else WAYS_S)
    titles = {arm.name: arm.title for arm in ARMS}
    return Results(machine(others), titles, found, exact, curves, bpf, wait_costs, ways)


@contextmanager
def first_of_all(group: Path = Path("/proc/self/autogroup")) -> Iterator[None]:
    """Give this process, and what it starts, the highest priority there is.

    Where the scheduler shares processors out by session first (sched(7), autogroup), a process's
    own priority counts only within its session, and the session's has to be raised, too. A
    session that is shared out otherwise (init's, one whose cgroup has shares) has an empty file.
    """
    os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    text = group.read_text() if group.exists() else ""
    if not text:
        yield
        return
    before = text.split()[-1]  # "/autogroup-12 nice 0"
    group.write_text(str(HIGHEST))
    try:
        yield
    finally:
        group.write_text(before)


def say(what: str) -> None:
    """Tell what is being measured."""
    print(f"{datetime.now(UTC):%H:%M:%S} {what}", file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cost")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--rounds", type=int, help="of each profiler on each workload")
    parser.add_argument("--workloads", help="some of them, with commas between")
    parser.add_argument("--arms", help="some of the profilers, with commas between")
    parser.add_argument("--parts", help=f"some of {', '.join(PARTS)}, with commas between")
    parser.add_argument(
        "--one-in-eight", action="store_true", help="only the tables of one wait in eight"
    )
    parser.add_argument("--write", action="store_true", help="to docs/, and the numbers as JSON")
    parser.add_argument("--redraw", action="store_true", help="what the last run has written")
    arguments = parser.parse_args(words)
    file, write = (EIGHTH_FILE, write_eighth) if arguments.one_in_eight else (FILE, write_docs)
    if arguments.redraw:
        results = Results.load(file)
    else:
        with first_of_all():
            results = measure(arguments)
    if arguments.write and not arguments.redraw:
        if arguments.parts:
            results = Results.load(file).with_parts(results, arguments.parts.split(","))
        results.save(file)
    if arguments.write or arguments.redraw:
        write(results)
    print(as_text(results))
    return 0 if all(verdict.may_be_kept for verdict in verdicts(results)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
