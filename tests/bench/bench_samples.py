"""What a sample of all goroutines takes, by their number and how many move between samples.

    python -m tests.bench.bench_samples [--seconds 3]

As root, on a quiet machine. A sample comes as in a recording, after a pause in which the caches
went cold. "us" is the CPU time of a sample, the median; "samples/s" how many fit into the budget of
a recording. Fails if a thousand goroutines of which one in fifty moves can't be sampled a hundred
times a second within it, or if more than one sample in a hundred of those that move finds no stack.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import Final

from ebpfprof.goruntime.samples.sampler import GoroutineSampler
from ebpfprof.goruntime.samples.sampling_thread import SamplingThread
from ebpfprof.process.process import Target as Process
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

PROMISED_HZ: Final = 100.0
PROMISED: Final = (980, 20)
MAX_UNKNOWN: Final = 0.01
WARM_UP: Final = 10


@dataclass(frozen=True)
class Measured:
    """The samples of a program: how many there can be a second, and what they did not find."""

    cost_us: float
    torn: int
    unknown: int
    moves: int

    @property
    def hz(self) -> float:
        """How many samples a second the budget allows."""
        return 1e6 * SamplingThread().share / self.cost_us


def measure(standing: int, moving: int, seconds: float) -> Measured:
    """Sample a program for so long, a hundred times a second on average."""
    costs_us: list[float] = []
    arguments = f"-standing={standing}", f"-goroutines={moving}"
    with Target.start(program("crowd"), *arguments) as target, Process(target.pid) as process:
        sampler = GoroutineSampler(inspect(process), has_labels=True)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s or len(costs_us) <= WARM_UP:
            began_s = time.thread_time()
            sampler.sample()
            costs_us.append((time.thread_time() - began_s) * 1e6)
            # Samples at equal distances could meet what the target does at equal distances.
            time.sleep(random.uniform(0.5, 1.5) / PROMISED_HZ)
        return Measured(
            median(costs_us[WARM_UP:]),
            sampler.states.torn,
            sampler.states.unknown,
            moving * len(costs_us),
        )


def main() -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds
    print(f"{'standing':>8} {'moving':>6} {'us':>6} {'samples/s':>7} {'torn':>6} {'unknown':>7}")
    broken = []
    for standing, moving in ((0, 2), (0, 20), (980, 20), (900, 100), (500, 500), (10_000, 100)):
        found = measure(standing, moving, seconds)
        print(
            f"{standing:8} {moving:6} {found.cost_us:6.0f} {found.hz:7.0f} {found.torn:6} "
            f"{found.unknown:7}",
            flush=True,
        )
        if (standing, moving) == PROMISED and found.hz < PROMISED_HZ:
            broken.append(f"{found.hz:.0f} samples a second at 1,000 goroutines")
        if found.unknown > MAX_UNKNOWN * found.moves:
            broken.append(f"{found.unknown} goroutines without a stack, of {found.moves}")
    for each in broken:
        print(f"Not kept: {each}.")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
