"""How long a large profile takes in each format, and how large it becomes.

    python -m tests.bench.bench_formats [STACKS]

Makes a block profile of STACKS (20,000) stacks as a large service has them, the same each time: a
tree of calls, 12 to 48 frames deep, some of them inlined. Prints the best of several runs.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ebpfprof.export import formats, pprof
from ebpfprof.profile import delta, idle
from ebpfprof.profile.model import Frame, Location, Mapping, Profile, Sample
from ebpfprof.profilers.waits.kinds import BLOCK

RUNS: Final = 3
_FUNCTIONS: Final = 4000
_LEAVES: Final = (
    "runtime.chanrecv1",
    "runtime.selectgo",
    "sync.(*Mutex).Lock",
    "sync.(*Cond).Wait",
)
_MAIN: Final = Mapping(0x400000, 0x4000000, 0, "/srv/service", "c0ffee")


def large_profile(stacks: int, seed: int = 1) -> Profile:
    """A block profile of that many different stacks."""
    chance = random.Random(seed)
    tree = [_location(chance, number) for number in range(_FUNCTIONS)]
    leaves = [
        Location(0x3F00000 + n, _MAIN, (Frame(name, "/go/src/runtime/x.go", 10 + n),))
        for n, name in enumerate(_LEAVES)
    ]
    found: dict[tuple[Location, ...], Sample] = {}
    paths: list[tuple[Location, ...]] = [()]
    while len(found) < stacks:
        # Most stacks share their callers with others, as they do in a program.
        begin = chance.choice(paths[-2000:])[: chance.randrange(1, 40)]
        more = tuple(chance.choices(tree, k=chance.randrange(12, 24)))
        path = (begin + more)[:48]
        paths.append(path)
        stack = (chance.choice(leaves), *reversed(path))
        count = chance.randrange(1, 1000)
        found[stack] = Sample(stack, (count, count * chance.randrange(100, 10_000_000)))
    return BLOCK.make_profile(
        found.values(),
        [_MAIN],
        time_ns=1_700_000_000_000_000_000,
        duration_ns=30_000_000_000,
    )


def _location(chance: random.Random, number: int) -> Location:
    frames = tuple(
        Frame(
            f"example.com/team/service/internal/package{number % 97}.(*Type{number % 31}).Do{n}",
            f"/src/service/internal/package{number % 97}/file{number % 7}.go",
            n % 900,
        )
        for n in range(number, number + chance.choice((1, 1, 1, 2, 3)))
    )
    return Location(0x400000 + 16 * number, _MAIN, frames)


def best_s(run: Callable[[], object]) -> float:
    """Seconds of the quickest of several runs."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main(arguments: Sequence[str]) -> None:
    stacks = int(arguments[0]) if arguments else 20_000
    profile = large_profile(stacks)
    frames = sum(
        len(location.frames) for sample in profile.samples for location in sample.locations
    )
    later = replace(
        profile,
        samples=tuple(
            replace(sample, values=(sample.values[0] + 1, sample.values[1] + number % 3))
            for number, sample in enumerate(profile.samples)
        ),
        duration_ns=2 * profile.duration_ns,
    )
    data = pprof.encode(profile)
    print(f"{stacks} stacks, {frames / stacks:.1f} frames each\n")
    print("| | s | MB |\n|---|---|---|")
    for name in formats.PROFILES:
        size = len(formats.encode(profile, name))
        taken_s = best_s(lambda name=name: formats.encode(profile, name))  # type: ignore[misc]  # mypy and defaults of a lambda
        print(f"| {name} | {taken_s:.2f} | {size / 1e6:.2f} |", flush=True)
    for name in formats.DIFFERENCES:
        size = len(formats.encode_difference(later, profile, name))
        taken_s = best_s(
            lambda name=name: formats.encode_difference(later, profile, name)  # type: ignore[misc]  # mypy and defaults of a lambda
        )
        print(f"| diff, {name} | {taken_s:.2f} | {size / 1e6:.2f} |", flush=True)
    others: dict[str, Callable[[], object]] = {
        "read pprof": lambda: pprof.decode(data),
        "difference of snapshots": lambda: delta.difference(later, profile),
        "sum of two": lambda: delta.merged([later, profile]),
        "find idle waits": lambda: idle.split(profile),
    }
    for what, run in others.items():
        print(f"| {what} | {best_s(run):.2f} | |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
