"""What a trace of one process costs others: those that switch between themselves.

    python -m tests.bench.bench_switches [--rounds N]

Two processes hand a byte to each other through pipes: each round trip is two wakes and two context
switches or more. Meanwhile an idle Go program is traced, or not, in turns in a random order. Shown
is how many times as long a round trip takes, and the ns that it takes more; then how long the
kernel says that each of the programs at its tracepoints ran, and how often, which no other load
disturbs. Both sides are on one processor, or on two. As root, on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from ebpfprof.process.process import Target as Process
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from tests.bench import bpfstats
from tests.bench.pairs import in_pairs, times_bare
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

TRIPS: Final = 20_000


@contextmanager
def partner(processor: int) -> Iterator[tuple[int, int]]:
    """A process that sends back each byte; the descriptors to read from and to write to."""
    (reads, sends), (receives, writes) = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reads)
        os.close(writes)
        os.sched_setaffinity(0, {processor})
        while byte := os.read(receives, 1):
            os.write(sends, byte)
        os._exit(0)
    os.close(sends)
    os.close(receives)
    yield reads, writes
    os.close(writes)
    os.close(reads)
    os.waitpid(pid, 0)


def ns_a_trip(reads: int, writes: int) -> float:
    began_ns = time.perf_counter_ns()
    for _ in range(TRIPS):
        os.write(writes, b"x")
        os.read(reads, 1)
    return (time.perf_counter_ns() - began_ns) / TRIPS


def measure(recorder: TraceRecorder, processors: int, rounds: int) -> None:
    """Print a row. The probes of the traced process stay; the programs at tracepoints come and go.

    To remove probes takes seconds.
    """
    kernel = recorder.program._program
    ours, others = sorted(os.sched_getaffinity(0))[0], sorted(os.sched_getaffinity(0))[-1]
    os.sched_setaffinity(0, {ours})
    with partner(ours if processors == 1 else others) as (reads, writes):
        bare, measured = [ns_a_trip(reads, writes)], []
        for _ in range(rounds):
            kernel.attach_tracepoint("on_switch", "sched_switch")
            kernel.attach_tracepoint("on_waking", "sched_waking")
            measured.append(ns_a_trip(reads, writes))
            kernel.detach_tracepoints()
            bare.append(ns_a_trip(reads, writes))
    os.sched_setaffinity(0, {ours, others})
    added = median(measured) - median(bare)
    print(f"{processors} processors  {times_bare(in_pairs(bare, measured))}  +{added:.0f} ns")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="of each kind (default 15)")
    rounds = parser.parse_args().rounds
    print("times as long as without a recording; the median, and 95 % of where it may lie")
    with (
        Target.start(program("sleeper")) as target,
        Process(target.pid) as process,
        TraceRecorder(inspect(process), TraceOptions()) as recorder,
    ):
        recorder.load()
        recorder.start()
        recorder.program._program.detach_tracepoints()
        for processors in (1, 2):
            measure(recorder, processors, rounds)
        before = bpfstats.runs_by_program(os.getpid())
        with bpfstats.counting_runs():
            measure(recorder, 1, 3)
        for name, runs in bpfstats.runs_by_program(os.getpid()).items():
            ran = runs - before[name]
            print(f"{name}: {ran.time_ns / max(1, ran.count):.0f} ns a run, {ran.count} runs")
        target.kill()


if __name__ == "__main__":
    main()
