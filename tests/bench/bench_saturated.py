"""What a user loses of a server's throughput where all processors are busy: ourselves included.

    python -m tests.bench.bench_saturated [--rounds N] [--seconds S]

An HTTP server and its client keep all processors busy. Each command records the server for a few
seconds, between stretches without one, in a random order. Shown is the part of the throughput
without a command that is left: from the start of the command to its end, with all that it does
before and after, and while it records; and the CPU time that the command used. As root, at the
highest priority there is.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from time import monotonic
from typing import IO, Final

from tests.bench import bpftrace
from tests.bench.cost import first_of_all
from tests.bench.costresults import table
from tests.bench.pairs import Pair, times_bare
from tests.bench.workloads import WORKLOADS, Running, program

COMMAND: Final = Path(sys.executable).with_name("ebpfprof")
HTTP: Final = next(workload for workload in WORKLOADS if workload.name == "http")
SLICE_S: Final = 0.1
BARE_S: Final = 3.0
BEGINS: Final = {"ebpfprof": "recording ", "bpftrace": "Attach"}
"""How the line begins with which a command says that it records."""


@dataclass
class Throughput:
    """Requests that were answered, by the times (monotonic seconds) of slices of the load."""

    slices: list[tuple[float, float, int]] = field(default_factory=list)

    def between(self, begin_s: float, end_s: float) -> float:
        """Requests a second; a slice that lies partly within counts partly."""
        answered = 0.0
        for began_s, ended_s, requests in self.slices:
            inside_s = min(ended_s, end_s) - max(began_s, begin_s)
            if inside_s > 0:
                answered += requests * inside_s / (ended_s - began_s)
        return answered / (end_s - begin_s)


@dataclass(frozen=True)
class Ran:
    """One command: when it began, recorded first and last, and ended; its CPU time in seconds."""

    begin_s: float
    records_s: float
    stops_s: float
    end_s: float
    cpu_s: float


class Load:
    """The client, which asks without a pause, in a thread of its own that notes how much."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._units = running.units_in(SLICE_S)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.throughput = Throughput()
        self._thread.start()

    def _ask(self) -> None:
        while not self._stopping.is_set():
            began_s = monotonic()
            self._running.round(self._units)
            self.throughput.slices.append((began_s, monotonic(), self._units))

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self._thread.join()


def ours(*options: str) -> Callable[[int, float], list[str]]:
    """The command line of `attach` for a process and that many seconds."""

    def command(pid: int, seconds: float) -> list[str]:
        words = [str(COMMAND), "attach", "--pid", str(pid), *options]
        return [*words, "--duration", str(seconds)]

    return command


def bpftrace_block(pid: int, _seconds: float) -> list[str]:
    """bpftrace's script for the same waits; it continues until a signal."""
    script = bpftrace.BLOCK.format(program=program())
    return ["bpftrace", "-p", str(pid), "-e", script]


COMMANDS: Final[dict[str, Callable[[int, float], list[str]]]] = {
    "ebpfprof, the default": ours(),
    "ebpfprof: block, every event": ours("--profile", "block", "--max-overhead", "0"),
    "bpftrace: block": bpftrace_block,
}


def run(command: list[str], seconds: float, folder: str) -> Ran:
    """Run it to its end, in a folder for what it writes.

    bpftrace gets an interrupt that many seconds after it began to record.
    """
    begin_s = monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
    )
    assert process.stdout
    begins = BEGINS["bpftrace" if command[0] == "bpftrace" else "ebpfprof"]
    shown: list[str] = []
    for line in process.stdout:
        shown.append(line)
        if line.startswith(begins):
            break
    else:
        raise RuntimeError(f"{command[0]} did not record: {''.join(shown)}")
    records_s = monotonic()
    rest = threading.Thread(target=_read_on, args=(process.stdout,))
    rest.start()
    if command[0] == "bpftrace":
        threading.Timer(seconds, process.send_signal, (signal.SIGINT,)).start()
    _, status, used = os.wait4(process.pid, 0)
    end_s = monotonic()
    process.returncode = os.waitstatus_to_exitcode(status)
    rest.join()
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed: {process.returncode}")
    cpu_s = used.ru_utime + used.ru_stime
    return Ran(begin_s, records_s, min(records_s + seconds, end_s), end_s, cpu_s)


def _read_on(output: IO[str]) -> None:
    for _ in output:
        pass


def measure(rounds: int, seconds: float) -> dict[str, list[tuple[Pair, Pair, float]]]:
    """Of each command and round: throughput from begin to end, and while it records; its CPU."""
    found: dict[str, list[tuple[Pair, Pair, float]]] = {name: [] for name in COMMANDS}
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory())
        running = Running(HTTP, held)
        load = Load(running)
        held.callback(load.stop)
        for _ in range(rounds):
            for name in random.sample(list(COMMANDS), len(COMMANDS)):
                before_s = monotonic()
                threading.Event().wait(BARE_S)
                line = COMMANDS[name](running.target.pid, seconds)
                ran = run(line, seconds, folder)
                after_s = monotonic()
                threading.Event().wait(BARE_S)
                rate = load.throughput.between
                beside = rate(before_s, ran.begin_s), rate(after_s, monotonic())
                whole = Pair(rate(ran.begin_s, ran.end_s), *beside)
                steady = Pair(rate(ran.records_s, ran.stops_s), *beside)
                found[name].append((whole, steady, ran.cpu_s))
    return found


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_saturated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each recording")
    arguments = parser.parse_args(words)
    if not shutil.which("bpftrace"):
        raise SystemExit("There is no bpftrace: `apt-get install bpftrace`.")
    with first_of_all():
        found = measure(arguments.rounds, arguments.seconds)
    rows = []
    for name, each in found.items():
        wholes, steadies, cpu = zip(*each, strict=True)
        left = [str(times_bare(pairs)) for pairs in (wholes, steadies)]
        rows.append((name, *left, f"{median(cpu):.2f} s"))
    heads = ("of bare throughput", "from start to end", "while it records", "its own CPU time")
    print(table(heads, rows))
    bare = fmean((pair.before + pair.after) / 2 for each in found.values() for pair, *_ in each)
    print(f"Bare: {bare:,.0f} requests a second.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
