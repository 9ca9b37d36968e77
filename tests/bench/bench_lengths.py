"""What the histograms of lengths cost: the BPF time of an event with them and without.

    python -m tests.bench.bench_lengths [--rounds N]

Prints a table for docs/performance.md. Each way of recording is compiled twice, once with a program
that counts nothing by length; both record the same process, in turns. The time is what the kernel
measures of all of our programs (bpf_stats), for a unit of work: the median of pairs of rounds, of
which one follows the other, so that other load disturbs both; each is first in half of the pairs.
As root.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, Final
from unittest import mock

from ebpfprof.kernel import program_source
from ebpfprof.kernel.sources import program_text
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.target import LiveTarget
from tests.bench.bpfstats import counting_runs, runs_of
from tests.bench.costresults import table
from tests.bench.workloads import WORKLOADS, Running

ROUND_S: Final = 0.1
PROMISED: Final = 0.05
_BY_NAME: Final = {workload.name: workload for workload in WORKLOADS}
WAYS: Final[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
    ("block", "pingpong", {"kinds": ("block",)}),
    ("block and mutex", "mutex", {"kinds": ("block", "mutex")}),
    ("mutex by lock", "mutex", {"kinds": ("mutex",), "by_lock": True}),
    ("wakers", "pingpong", {"kinds": ("wakers",)}),
    (
        "block and run queue, one in eight",
        "pingpong",
        {"kinds": ("block", "runqueue"), "one_in_eight": True},
    ),
)
_ADDS: Final = """static __always_inline bool add_to_row(u64 key, u64 ns, const struct total *more,
                                       u32 target_index) {
"""


def without_lengths(name: str) -> str:
    """The text of a program that adds to the sums of stacks, pairs and locks, and to no row."""
    text = program_text(name)
    assert _ADDS in text
    return text.replace(_ADDS, f"{_ADDS}    return false;\n")


def bpf_ns(session: LiveSession, recorded: LiveTarget, running: Running, units: int) -> float:
    """The time that the kernel measures of one unit; meanwhile nothing else runs our programs."""
    session.start(recorded)
    with counting_runs():
        before = runs_of(os.getpid())
        running.round(units)
        runs = runs_of(os.getpid()) - before
    session.stop(recorded)
    return runs.time_ns / units


def pair(
    recorded: Sequence[tuple[LiveSession, LiveTarget]],
    running: Running,
    units: int,
    *,
    turned: bool,
) -> tuple[float, ...]:
    """The time of a unit without lengths and with them; `turned`: that with them is first."""
    order = recorded[::-1] if turned else recorded
    found = [bpf_ns(session, target, running, units) for session, target in order]
    return tuple(found[::-1] if turned else found)


def row(way: str, workload: str, options: Mapping[str, Any], rounds: int) -> list[str]:
    with ExitStack() as held:
        with mock.patch.object(program_source, "program_text", without_lengths):
            sessions = [held.enter_context(LiveSession(Options(**options)))]
        sessions.append(held.enter_context(LiveSession(Options(**options))))
        running = Running(_BY_NAME[workload], held)
        recorded = [(session, session.add(running.target.pid)) for session in sessions]
        units = running.units_in(ROUND_S)
        found = [pair(recorded, running, units, turned=bool(at % 2)) for at in range(rounds)]
    more = median(after / before for before, after in found) - 1
    without_ns, with_ns = (median(column) for column in zip(*found, strict=True))
    kept = "yes" if more < PROMISED else "no"
    title = _BY_NAME[workload].title
    return [way, title, f"{without_ns:,.0f}", f"{with_ns:,.0f}", f"{100 * more:+.1f} %", kept]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_lengths")
    parser.add_argument("--rounds", type=int, default=15)
    rounds: int = parser.parse_args(words).rounds
    headings = ("recording", "program", "ns without", "ns with", "more", "less than 5 %")
    print(table(headings, []), end="", flush=True)
    for way in WAYS:
        print(f"| {' | '.join(row(*way, rounds))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
