"""What a profile of allocations costs a program that does little but allocate.

    python -m tests.bench.bench_allocations [--rounds N]

Rounds of equal work, each between two without a profile, in a random order: Go's own memory profile
at its usual rate; ours with the usual bound, and of each object; and bpftrace counting the stacks
of runtime.mallocgc. Shown is how many times as long the work takes. As root, on a quiet machine.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.bench import bpftrace
from tests.bench.pairs import in_pairs, times_bare
from tests.kernel.programs import program
from tests.recorder import end, recording
from tests.targets_run import Target

# In Go 1.27, small objects of a size that the compiler knows don't pass runtime.mallocgc.
VERSION: Final = "1.26"
ROUND_S: Final = 2.0
SLOW_ROUND_S: Final = 0.1
"""Of those that stop at each object: they take up to a hundred times as long."""
SLOW: Final = ("ebpfprof, each object", "bpftrace")
WORKS: Final = ("json", "small", "buffers")
BPFTRACE: Final = "uprobe:{program}:runtime.mallocgc {{ @[ustack(32)] = count(); }}"


@contextmanager
def gos(target: Target) -> Iterator[None]:
    target.ask(f"rate {512 << 10}", "done")
    yield
    target.ask("rate 0", "done")


@contextmanager
def ours(target: Target, *arguments: str) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        named = ("--profile", "allocs,heap", *arguments)
        with recording(target.pid, Path(folder), *named) as recorder:
            yield
            end(recorder)


def arms(target: Target) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    binary = program("allocload", VERSION)
    return {
        "Go's own, 512 KiB": lambda: gos(target),
        "ebpfprof": lambda: ours(target, "--max-overhead", "1"),
        "ebpfprof, each object": lambda: ours(target, "--max-overhead", "0"),
        "bpftrace": lambda: bpftrace.attached(
            target.pid, binary, BPFTRACE, probed="runtime.mallocgc"
        ),
    }


def took_s(target: Target, work: str, count: int) -> float:
    return int(target.ask(f"{work} {count}", "took").split()[1]) / 1e9


def measure(work: str, rounds: int, chosen: random.Random) -> None:
    """Print a row for each arm."""
    with Target.start(program("allocload", VERSION)) as target:
        count = 100
        while (length_s := took_s(target, work, count)) < ROUND_S / 4:
            count *= 2
        a_second = count / length_s
        for name, attached in chosen.sample(sorted(arms(target).items()), len(arms(target))):
            count = max(1, int(a_second * (SLOW_ROUND_S if name in SLOW else ROUND_S)))
            bare, measured = [took_s(target, work, count)], []
            for _ in range(rounds):
                with attached():
                    measured.append(took_s(target, work, count))
                bare.append(took_s(target, work, count))
            print(f"{work:8}  {name:22}  {times_bare(in_pairs(bare, measured))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each kind (default 5)")
    rounds = parser.parse_args().rounds
    chosen = random.Random(1)
    print("times as long as without a profile; the median, and 95 % of where it may lie")
    for work in WORKS:
        measure(work, rounds, chosen)


if __name__ == "__main__":
    main()
