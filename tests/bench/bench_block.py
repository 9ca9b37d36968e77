"""What a block event costs: one ping-pong over an unbuffered channel, four ways, in one run.

    python -m tests.bench.bench_block

Bare, under Go's own block profiler at rate 1, under ebpfprof, under bpftrace. Rounds of the four
take turns, so that a slow spell of the machine hits all of them; the medians are compared. Fails
if ebpfprof adds more than an eighth of what bpftrace adds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.bench import bpftrace
from tests.recorder import recording
from tests.targets_run import Target
from tests.toolchains import toolchain

PINGPONG = Path(__file__).parent.parent / "targets" / "pingpong"
TURNS = 5
ROUNDS_A_TURN = 3
LIMIT = 1 / 8


@contextmanager
def nothing(_target: Target, _program: Path) -> Iterator[None]:
    yield


@contextmanager
def ours(target: Target, _program: Path) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, recording(target.pid, Path(folder)) as recorder:
        yield
        recorder.interrupt()
        recorder.finish()


@contextmanager
def by_bpftrace(target: Target, program: Path) -> Iterator[None]:
    with bpftrace.attached(target.pid, program):
        yield


WAYS = {
    "no profiler": (nothing, "-blockrate=0"),
    "Go's own, rate 1": (nothing, "-blockrate=1"),
    "ebpfprof": (ours, "-blockrate=0"),
    "bpftrace": (by_bpftrace, "-blockrate=0"),
}


def measure() -> dict[str, float]:
    """Nanoseconds per send, the median over all rounds, by way."""
    program = toolchain("1.27").build(PINGPONG)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    with ExitStack() as held:
        targets = {
            flag: held.enter_context(Target.start(program, flag))
            for flag in ("-blockrate=0", "-blockrate=1")
        }
        for _ in range(TURNS):
            for name, (attached, flag) in WAYS.items():
                with attached(targets[flag], program):
                    targets[flag].ask("warm up", "ns ")
                    times[name] += [
                        float(targets[flag].ask("go", "ns ").split()[1])
                        for _ in range(ROUNDS_A_TURN)
                    ]
    return {name: median(values) for name, values in times.items()}


def main() -> int:
    results = measure()
    bare = results["no profiler"]
    print(f"{'one send, one blocking event':30}{'ns':>9}{'added':>9}{'times bare':>12}")
    for name, value in results.items():
        print(f"{name:30}{value:9.0f}{value - bare:9.0f}{value / bare:12.1f}")
    ratio = (results["ebpfprof"] - bare) / (results["bpftrace"] - bare)
    print(f"\nebpfprof adds {ratio:.3f} of what bpftrace adds (limit {LIMIT:.3f})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
