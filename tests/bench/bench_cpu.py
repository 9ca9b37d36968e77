"""What a CPU profile costs: a loop that computes and an HTTP server, six ways, in one run.

    python -m tests.bench.bench_cpu [SECONDS]

Bare, under ebpfprof at 99 and at 999 samples a second, under Go's own CPU profiler (100), under
`perf record -g` at 99 and at 999. The cost is less than what the machine's speed changes from one
second to the next: so there are many short rounds, each between two bare ones (tests/bench/pairs).
Of the loop, the quick rounds are compared, of the server the median of pairs; in brackets, where
95 of 100 runs would come out. The server shares the processors with the client that loads it, and
with the profiler. All of them run at the highest priority, so that other programs on the machine
count for less. "BPF a sample" is what the kernel measures that our program runs, by sample of the
target; "own CPU" what ebpfprof's own process uses while it records, once it has learnt the target.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic, monotonic_ns
from typing import Final

from tests.bench.bpfstats import counting_runs, runs_of
from tests.bench.pairs import (
    Estimate,
    Pair,
    in_pairs,
    schedule,
    slower_at_best,
    slower_in_the_middle,
)
from tests.targets_run import Target
from tests.toolchains import toolchain

CPULOAD: Final = Path(__file__).parent.parent / "targets" / "cpuload"
SECONDS: Final = 200.0
LOAD_MS: Final = 250
LEARNING_ROUNDS: Final = 3
COUNTED_ROUNDS: Final = 8


class Profiler:
    """Something that can be switched on and off for a target, quickly, and is gone in between."""

    own_cpu: float | None = None
    """The part of a processor that it uses besides, while it is on."""

    def learn(self, target: Target) -> None:
        """Get to know a target before it counts."""

    def on(self, target: Target) -> None:
        """Begin to record."""

    def off(self, target: Target) -> None:
        """Stop that."""


class Ours(Profiler):
    """ebpfprof, loaded once."""

    def __init__(self, hz: int, held: ExitStack) -> None:
        arguments = ("-m", "tests.bench.cpurecorder", str(hz))
        self.process = held.enter_context(Target.start(Path(sys.executable), *arguments))
        self._cpu_ns = self._wall_ns = 0
        self._started_cpu_ns = self._started_ns = 0

    def learn(self, target: Target) -> None:
        self.process.ask(f"add {target.pid}", "added")

    def on(self, target: Target) -> None:
        answer = self.process.ask(f"start {target.pid}", "started")
        self._started_cpu_ns, self._started_ns = int(answer.split()[1]), monotonic_ns()

    def off(self, target: Target) -> None:
        answer = self.process.ask(f"stop {target.pid}", "stopped")
        self._cpu_ns += int(answer.split()[1]) - self._started_cpu_ns
        self._wall_ns += monotonic_ns() - self._started_ns
        self.own_cpu = self._cpu_ns / self._wall_ns

    def forget_cpu(self) -> None:
        """Count its processor time from now on."""
        self._cpu_ns = self._wall_ns = 0

    def samples(self, target: Target) -> int:
        """How many were taken of a target so far."""
        return int(self.process.ask(f"samples {target.pid}", "samples").split()[1])


class OfGo(Profiler):
    """Go's own, in the target."""

    def on(self, target: Target) -> None:
        target.ask("profile on", "profile")

    def off(self, target: Target) -> None:
        target.ask("profile off", "profile")


class Perf(Profiler):
    """`perf record -g`, started each time: events that wait disabled would cost bare rounds.

    Without the names of BPF programs, for which it would take most of a second to end.
    """

    def __init__(self, hz: int, folder: str) -> None:
        self._hz = hz
        self._file = Path(folder) / f"{hz}.data"
        self._process: subprocess.Popen[bytes] | None = None

    def on(self, target: Target) -> None:
        orders, ordering = os.pipe()
        answers, answering = os.pipe()
        command = ["perf", "record", "-q", "-B", "-N", "--no-bpf-event", "-D", "-1"]
        command += ["-e", "cpu-clock", "-F", str(self._hz), "-g", "-p", str(target.pid)]
        command += ["-o", str(self._file)]
        command += [f"--control=fd:{orders},{answering}"]
        fds = (orders, answering)
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, pass_fds=fds)
        for fd in fds:
            os.close(fd)
        os.write(ordering, b"enable\n")
        answer = os.read(answers, 16)
        os.close(ordering)
        os.close(answers)
        if not answer.startswith(b"ack"):
            raise RuntimeError(f"perf did not start: {self._process.wait()}")

    def off(self, _target: Target) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        if not self._file.stat().st_size:
            raise RuntimeError("perf wrote nothing")
        self._process = None


@dataclass
class Results:
    """Rounds of one load: of each profiler the pairs, and all the bare rounds."""

    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    bare: list[float] = field(default_factory=list)


def measure(
    profilers: dict[str, Profiler], target: Target, one_round: Callable[[], float], until: float
) -> Results:
    """Bare rounds and others take turns, until the time (monotonic, seconds)."""
    for profiler in profilers.values():
        profiler.learn(target)
        for _ in range(LEARNING_ROUNDS):
            profiler.on(target)
            one_round()
            profiler.off(target)
        if isinstance(profiler, Ours):
            profiler.forget_cpu()
    order: list[str] = []
    measured = []
    bare = [one_round()]
    for name in schedule(list(profilers), random.Random()):
        profilers[name].on(target)
        measured.append(one_round())
        profilers[name].off(target)
        order.append(name)
        bare.append(one_round())
        if monotonic() > until and len(order) % len(profilers) == 0:
            break
    results = Results({name: [] for name in profilers}, bare)
    for name, pair in zip(order, in_pairs(bare, measured), strict=True):
        results.pairs[name].append(pair)
    return results


def bpf_ns_a_sample(ours: Ours, target: Target, one_round: Callable[[], float]) -> float:
    """How long our BPF program runs for each sample of the target, in nanoseconds."""
    with counting_runs():
        samples, runs = ours.samples(target), runs_of(ours.process.pid)
        for _ in range(COUNTED_ROUNDS):
            ours.on(target)
            one_round()
            ours.off(target)
        return (runs_of(ours.process.pid) - runs).time_ns / (ours.samples(target) - samples)


def show(name: str, values: list[float], slower: Estimate | None, rest: str) -> None:
    cost = f"{slower}" if slower else ""
    print(f"  {name:24}{median(values):10,.0f}{cost:>26}{rest}")


def report(title: str, results: Results, estimate: Callable[[list[Pair]], Estimate]) -> None:
    print(f"{title:26}{'median':>10}{'slower by':>26}{'rounds':>8}")
    show("no profiler", results.bare, None, f"{len(results.bare):8}")
    for name, pairs in results.pairs.items():
        values = [pair.measured for pair in pairs]
        show(name, values, estimate(pairs), f"{len(pairs):8}")


def main(arguments: list[str]) -> int:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    seconds = float(arguments[0]) if arguments else SECONDS
    program = toolchain("1.27").build(CPULOAD)
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory())
        loop, server, client = (held.enter_context(Target.start(program)) for _ in range(3))
        ours = {f"ebpfprof, {hz} Hz": Ours(hz, held) for hz in (99, 999)}
        profilers: dict[str, Profiler] = {
            **ours,
            "Go's own, 100 Hz": OfGo(),
            "perf record -g, 99 Hz": Perf(99, folder),
            "perf record -g, 999 Hz": Perf(999, folder),
        }
        address = server.ask("serve", "address ").split()[1]

        def compute() -> float:
            return sum(float(loop.ask("go", "ns ").split()[1]) for _ in range(2)) / 2

        def serve() -> float:
            return float(client.ask(f"load {address} {LOAD_MS}", "rate ").split()[1])

        for title, target, one_round, estimate, part in (
            ("loop, ns", loop, compute, slower_at_best, 0.4),
            ("server, requests/s", server, serve, slower_in_the_middle, 0.6),
        ):
            results = measure(profilers, target, one_round, monotonic() + part * seconds)
            report(title, results, estimate)
            for name, each in ours.items():
                used = each.own_cpu
                assert used is not None
                took_ns = bpf_ns_a_sample(each, target, one_round)
                print(f"  {name:24}BPF a sample: {took_ns:,.0f} ns; own CPU: {used:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
