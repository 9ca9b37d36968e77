"""What an execution trace costs: a program that only hands over, at several rates, and a server.

    python -m tests.bench.bench_trace [--rounds N] [--only TEXT]

Ping-pong over a channel: each send is a park, a wake and a run. Its producer computes before each
send, so that there are about 10,000 or 1,000,000 sends a second, or does not. The server answers
HTTP requests of 16 connections. A third program only logs messages by runtime/trace. Rounds with a
recording stand between two without, in a random order; of ping-pong, Go's own tracer is on in a
second process, whose rounds stand between those of the first. Shown is how many times as long a
send or a request takes, the ns that it takes more, and what is written in MB a second: by ebpfprof
the file in Go's format, with the events in memory in brackets. As root, on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from ebpfprof.export.timelines import go_trace
from ebpfprof.process.process import Target as Process
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.rings import EVENT
from ebpfprof.tracing.timelines import timeline_of
from tests.bench import bpftrace, workloads
from tests.bench.pairs import in_pairs, times_bare
from tests.bench.workloads import WORKLOADS, Running
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

VERSION: Final = "1.26"
HTTP: Final = next(workload for workload in WORKLOADS if workload.name == "http")
HTTP_TITLE: Final = "HTTP server"
ANNOTATED_TITLE: Final = "annotations: messages"
MESSAGES: Final = 100_000
REQUESTS_S: Final = 0.5
ARMS: Final = {
    "ebpfprof, 1 %": TraceOptions(max_overhead=1),
    "ebpfprof, all": TraceOptions(),
    "ebpfprof, exact starts": TraceOptions(exact_starts=True),
}
GOS: Final = "Go's own tracer"
PERF: Final = "perf sched record"
BPFTRACE: Final = "bpftrace"
SLOWER: Final = 20  # times fewer sends beside bpftrace


class Case(NamedTuple):
    """One way in which ping-pong continues."""

    processors: int
    spin: str
    sends: int

    @property
    def title(self) -> str:
        """For people."""
        how = f", {self.spin} of work before each send" if self.spin != "0" else ""
        return f"ping-pong, GOMAXPROCS={self.processors}{how}"


CASES: Final = (
    Case(1, "0", 1_000_000),
    Case(2, "0", 1_000_000),
    Case(2, "1us", 300_000),
    Case(2, "100us", 5_000),
)


class Written:
    """What the last recording wrote, in bytes; `events` are those that were in memory."""

    file = events = 0


@contextmanager
def ours(pid: int, options: TraceOptions) -> Iterator[None]:
    Written.file = Written.events = 0
    with Process(pid) as process, TraceRecorder(inspect(process), options) as recorder:
        recorder.load()
        recorder.start()
        with polling(recorder):
            yield
        recorder.stop()
        recorded = recorder.recorded()
        Written.events = len(recorded.rows) * EVENT.itemsize
        Written.file = len(go_trace.encode(timeline_of(recorded)))


@contextmanager
def polling(recorder: TraceRecorder) -> Iterator[None]:
    """Have a thread read events, as the command does."""
    over = threading.Event()
    reads = threading.Thread(target=lambda: recorder.record(3600, lambda _: over.is_set()))
    reads.start()
    yield
    over.set()
    reads.join()


@contextmanager
def perf(folder: Path) -> Iterator[None]:
    """`perf sched record`, which sees threads and no goroutines: of the whole machine."""
    file = folder / "sched.data"
    orders, ordering = os.pipe()
    answers, answering = os.pipe()
    control = f"--control=fd:{orders},{answering}"
    command = ["perf", "sched", "record", "-q", "-D", "-1", "-o", str(file), control]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, pass_fds=(orders, answering))
    os.close(orders)
    os.close(answering)
    os.write(ordering, b"enable\n")
    if not os.read(answers, 16).startswith(b"ack"):
        raise RuntimeError(f"perf did not start: {process.wait()}")
    yield
    process.send_signal(signal.SIGINT)
    process.wait()
    os.close(ordering)
    os.close(answers)
    Written.file, Written.events = file.stat().st_size, 0


def of_ours(pid: int) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    return {name: partial(ours, pid, options) for name, options in ARMS.items()}


def arms(
    pid: int, binary: Path, folder: Path
) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    return {
        **of_ours(pid),
        BPFTRACE: lambda: bpftrace.attached(pid, binary),
        PERF: lambda: perf(folder),
    }


def shown(name: str, bare: list[float], measured: list[float], rates: list[str]) -> None:
    added = median(measured) - median(bare)
    more = f", {rates[-1]}" if rates else ""
    print(f"{name:24}  {times_bare(in_pairs(bare, measured))}  +{added:,.0f} ns{more}", flush=True)


def rate(ns: float) -> str:
    """What the last recording wrote, a second."""
    file, events = Written.file / ns * 1e3, Written.events / ns * 1e3
    return f"{file:.2f} MB/s" + (f" ({events:.1f})" if events else "")


def beside(
    once: Callable[[str], tuple[float, float]],
    arms: dict[str, Callable[[], AbstractContextManager[object]]],
    rounds: int,
    chosen: random.Random,
) -> None:
    """Print a row for each arm; `once` returns the ns of a unit beside it, and of all."""
    for name, attached in chosen.sample(sorted(arms.items()), len(arms)):
        bare, measured, rates = [once("")[0]], [], []
        for _ in range(rounds):
            with attached():
                each_ns, all_ns = once(name)
            measured.append(each_ns)
            if name in (*ARMS, PERF):
                rates.append(rate(all_ns))
            bare.append(once("")[0])
        shown(name, bare, measured, rates)


def measure_pingpong(case: Case, rounds: int, chosen: random.Random, folder: Path) -> None:
    binary = program("pingpong", VERSION)
    settings = ("-procs", str(case.processors), "-sends", str(case.sends), "-spin", case.spin)
    theirs = folder / "go.trace"

    def of(target: Target, arm: str = "") -> tuple[float, float]:
        sends = case.sends // (SLOWER if arm == BPFTRACE else 1)
        each_ns = float(target.ask(f"go {sends}", "ns").split()[1])
        return each_ns, each_ns * sends

    with (
        Target.start(binary, *settings) as target,
        Target.start(binary, *settings, "-trace", str(theirs)) as gos,
    ):
        bare, measured, rates = [of(target)[0]], [], []
        print(f"{case.title}: {1e9 / bare[0]:,.0f} sends a second")
        for _ in range(rounds):
            before = theirs.stat().st_size
            each_ns, all_ns = of(gos)
            measured.append(each_ns)
            Written.file, Written.events = theirs.stat().st_size - before, 0
            rates.append(rate(all_ns))
            bare.append(of(target)[0])
        shown(GOS, bare, measured, rates)
        gos.kill()
        beside(partial(of, target), arms(target.pid, binary, folder), rounds, chosen)
        target.kill()


@contextmanager
def gos(running: Running) -> Iterator[None]:
    running.target.ask("own trace=1", "own")
    yield
    running.target.ask("own", "own")


def measure_http(rounds: int, chosen: random.Random, folder: Path) -> None:
    with ExitStack() as held:
        running = Running(HTTP, held)
        units = running.units_in(REQUESTS_S)

        def once(_arm: str = "") -> tuple[float, float]:
            wall_ns = running.round(units).wall_ns
            return wall_ns / units, wall_ns

        print(f"{HTTP_TITLE}: {1e9 / once()[0]:,.0f} requests a second")
        binary = workloads.program()
        found = arms(running.target.pid, binary, folder)
        beside(once, {**found, GOS: lambda: gos(running)}, rounds, chosen)


def measure_annotations(rounds: int, chosen: random.Random) -> None:
    """What a message costs, of which the texts take a piece each."""
    with Target.start(program("annotated", VERSION)) as target:

        def once(_arm: str = "") -> tuple[float, float]:
            all_ns = float(target.ask(f"log {MESSAGES}", ""))
            return all_ns / MESSAGES, all_ns

        print(f"{ANNOTATED_TITLE}: {1e9 / once()[0]:,.0f} a second")
        beside(once, of_ours(target.pid), rounds, chosen)
        target.kill()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="of each kind (default 7)")
    parser.add_argument("--only", default="", help="cases with this in their titles (HTTP, work)")
    asked = parser.parse_args()
    rounds = asked.rounds
    chosen = random.Random(1)
    print("times as long as without a recording; the median, and 95 % of where it may lie")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if asked.only in case.title:
                measure_pingpong(case, rounds, chosen, Path(folder))
        if asked.only in ANNOTATED_TITLE:
            measure_annotations(rounds, chosen)
        if asked.only in HTTP_TITLE:
            measure_http(rounds, chosen, Path(folder))


if __name__ == "__main__":
    main()
