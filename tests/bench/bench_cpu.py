"""What a CPU profile costs: a loop that computes and an HTTP server, six ways, in one run.

    python -m tests.bench.bench_cpu

Bare, under ebpfprof at 99 and at 999 samples a second, under Go's own CPU profiler (100), under
`perf record -g` at 99 and at 999. Rounds of the six take turns, so that a slow spell of the
machine hits all of them; the medians are compared. The server shares the processors with the
client that loads it, and with the profiler. All of them run at the highest priority, so that
other programs on the machine count for less.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from tests.differential.framepointers import perf_recording
from tests.recorder import recording
from tests.targets_run import Target
from tests.toolchains import toolchain

CPULOAD: Final = Path(__file__).parent.parent / "targets" / "cpuload"
TURNS: Final = 5
ROUNDS_A_TURN: Final = 3
LOAD_MS: Final = 700

Way = Callable[[Target], AbstractContextManager[None]]


@contextmanager
def nothing(_target: Target) -> Iterator[None]:
    yield


def ours(hz: int) -> Way:
    @contextmanager
    def attached(target: Target) -> Iterator[None]:
        arguments = ("--profile", "cpu", "--hz", str(hz))
        with (
            tempfile.TemporaryDirectory() as folder,
            recording(target.pid, Path(folder), *arguments) as recorder,
        ):
            yield
            recorder.interrupt()
            recorder.finish()

    return attached


@contextmanager
def by_go(target: Target) -> Iterator[None]:
    target.ask("profile on", "profile")
    yield
    target.ask("profile off", "profile")


def by_perf(hz: int) -> Way:
    @contextmanager
    def attached(target: Target) -> Iterator[None]:
        with (
            tempfile.TemporaryDirectory() as folder,
            perf_recording(target.pid, Path(folder), hz, kernel=True),
        ):
            yield

    return attached


WAYS: Final[dict[str, Way]] = {
    "no profiler": nothing,
    "ebpfprof, 99 Hz": ours(99),
    "ebpfprof, 999 Hz": ours(999),
    "Go's own, 100 Hz": by_go,
    "perf record -g, 99 Hz": by_perf(99),
    "perf record -g, 999 Hz": by_perf(999),
}


@dataclass
class Results:
    """All rounds of one way: nanoseconds of a round of the loop, requests per second."""

    loop_ns: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)


def measure() -> dict[str, Results]:
    program = toolchain("1.27").build(CPULOAD)
    results = {name: Results() for name in WAYS}
    with (
        Target.start(program) as loop,
        Target.start(program) as server,
        Target.start(program) as client,
    ):
        address = server.ask("serve", "address ").split()[1]
        order = f"load {address} {LOAD_MS}"
        for _ in range(TURNS):
            for name, attached in WAYS.items():
                with attached(loop):
                    loop.ask("go", "ns ")  # warms up
                    results[name].loop_ns += [
                        float(loop.ask("go", "ns ").split()[1]) for _ in range(ROUNDS_A_TURN)
                    ]
                with attached(server):
                    client.ask(order, "rate ")
                    results[name].requests += [
                        float(client.ask(order, "rate ").split()[1]) for _ in range(ROUNDS_A_TURN)
                    ]
    return results


def main() -> int:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    results = measure()
    bare = results["no profiler"]
    bare_ns, bare_rate = median(bare.loop_ns), median(bare.requests)
    print(f"{'':26}{'loop, ns':>10}{'slower by':>11}{'requests/s':>12}{'slower by':>11}")
    for name, result in results.items():
        loop_ns, rate = median(result.loop_ns), median(result.requests)
        print(
            f"{name:26}{loop_ns:10,.0f}{loop_ns / bare_ns - 1:11.1%}"
            f"{rate:12,.0f}{bare_rate / rate - 1:11.1%}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
