"""What a contended lock costs: six goroutines at one mutex, five ways, in one run.

    python -m tests.bench.bench_mutex

Bare, under Go's own mutex profiler at fraction 1, under ebpfprof's mutex profile, under its block
and mutex profiles at once, under bpftrace. Rounds of the five take turns, so that a slow spell of
the machine hits all of them; the medians are compared. Fails if ebpfprof's mutex profile adds
more than a fifth of what bpftrace adds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.recorder import recording
from tests.targets_run import Target
from tests.toolchains import toolchain

MUTEXLOOP = Path(__file__).parent.parent / "targets" / "mutexloop"
TURNS = 5
ROUNDS_A_TURN = 3
LIMIT = 1 / 5

# semacquire1 is where a lock that is not free leads to, with g in R14. A wake has the goroutine
# that waited in AX. All by symbol, that is, on the first instruction.
SCRIPT = """
BEGIN {{ printf("attached\\n"); }}
uprobe:{program}:runtime.semacquire1 {{ @came[reg("r14")] = nsecs; }}
uprobe:{program}:runtime.ready /@came[reg("ax")]/ {{
    @delay[ustack(32)] = sum(nsecs - @came[reg("ax")]);
    @count[ustack(32)] = count();
    delete(@came[reg("ax")]);
}}
"""

Way = Callable[[Target, Path], AbstractContextManager[None]]


@dataclass(frozen=True)
class Round:
    """One round of mutexloop: nanoseconds per Lock and Unlock, and wakes per second."""

    pair_ns: float
    contentions_per_s: float


@contextmanager
def nothing(_target: Target, _program: Path) -> Iterator[None]:
    yield


def ours(kinds: str) -> Way:
    @contextmanager
    def attached(target: Target, _program: Path) -> Iterator[None]:
        with (
            tempfile.TemporaryDirectory() as folder,
            recording(target.pid, Path(folder), "--profile", kinds) as recorder,
        ):
            yield
            recorder.interrupt()
            recorder.finish()

    return attached


@contextmanager
def by_bpftrace(target: Target, program: Path) -> Iterator[None]:
    script = SCRIPT.format(program=program)
    process = subprocess.Popen(
        ["bpftrace", "-B", "line", "-p", str(target.pid), "-e", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        # What BEGIN prints is read when all probes are in place.
        if "attached\n" not in iter(process.stdout.readline, ""):
            raise RuntimeError(f"bpftrace did not attach: {process.communicate()[1]}")
        yield
    finally:
        process.kill()
        process.communicate()


WAYS: dict[str, tuple[Way, str]] = {
    "no profiler": (nothing, "-mutexfraction=0"),
    "Go's own, fraction 1": (nothing, "-mutexfraction=1"),
    "ebpfprof, mutex": (ours("mutex"), "-mutexfraction=0"),
    "ebpfprof, block and mutex": (ours("block,mutex"), "-mutexfraction=0"),
    "bpftrace": (by_bpftrace, "-mutexfraction=0"),
}


def run_round(target: Target) -> Round:
    _, pair_ns, _, contentions_per_s = target.ask("go", "ns ").split()
    return Round(float(pair_ns), float(contentions_per_s))


def measure() -> dict[str, Round]:
    """The median over all rounds, by way."""
    program = toolchain("1.27").build(MUTEXLOOP)
    rounds: dict[str, list[Round]] = {name: [] for name in WAYS}
    with ExitStack() as held:
        targets = {
            flag: held.enter_context(Target.start(program, flag))
            for flag in ("-mutexfraction=0", "-mutexfraction=1")
        }
        for _ in range(TURNS):
            for name, (attached, flag) in WAYS.items():
                with attached(targets[flag], program):
                    run_round(targets[flag])  # warms up
                    rounds[name] += [run_round(targets[flag]) for _ in range(ROUNDS_A_TURN)]
    return {
        name: Round(median(r.pair_ns for r in some), median(r.contentions_per_s for r in some))
        for name, some in rounds.items()
    }


def main() -> int:
    results = measure()
    bare = results["no profiler"].pair_ns
    print(f"{'one Lock and Unlock':28}{'ns':>9}{'added':>9}{'times bare':>12}{'contentions/s':>15}")
    for name, result in results.items():
        added, times = result.pair_ns - bare, result.pair_ns / bare
        print(
            f"{name:28}{result.pair_ns:9.0f}{added:9.0f}{times:12.1f}"
            f"{result.contentions_per_s:15,.0f}"
        )
    added_by_us = results["ebpfprof, mutex"].pair_ns - bare
    ratio = added_by_us / (results["bpftrace"].pair_ns - bare)
    print(f"\nebpfprof adds {ratio:.3f} of what bpftrace adds (limit {LIMIT:.3f})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
