"""What an execution trace costs a program that does little but hand over to another goroutine.

    python -m tests.bench.bench_trace [--rounds N]

Ping-pong over a channel: each send is a park, a wake and a run. Rounds with a recording stand
between two without, in a random order; Go's own tracer is on in a second process, whose rounds
stand between those of the first. Shown is how many times as long a send takes, the ns that it takes
more, and what the events are in MB a second of the program. As root, on a quiet machine.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from ebpfprof.goruntime.process import inspect
from ebpfprof.process.process import Target as Process
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.rings import EVENT
from tests.bench import bpftrace
from tests.bench.pairs import in_pairs, times_bare
from tests.kernel.programs import program
from tests.targets_run import Target

VERSION: Final = "1.26"
SENDS: Final = 1_000_000
ARMS: Final = {
    "ebpfprof, 1 %": TraceOptions(max_overhead=1),
    "ebpfprof, all": TraceOptions(),
    "ebpfprof, exact starts": TraceOptions(exact_starts=True),
}


class Recorded:
    """How many events the last recording had."""

    events = 0


@contextmanager
def ours(pid: int, options: TraceOptions) -> Iterator[None]:
    with Process(pid) as process, TraceRecorder(inspect(process), options) as recorder:
        recorder.load()
        recorder.start()
        with polling(recorder):
            yield
        recorder.stop()
        Recorded.events = len(recorder.recorded().rows)


@contextmanager
def polling(recorder: TraceRecorder) -> Iterator[None]:
    """Have a thread read events, as the command does."""
    over = threading.Event()
    reads = threading.Thread(target=lambda: recorder.record(3600, lambda _: over.is_set()))
    reads.start()
    yield
    over.set()
    reads.join()


def arms(target: Target) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    binary = program("pingpong", VERSION)
    return {
        **{name: partial(ours, target.pid, options) for name, options in ARMS.items()},
        "bpftrace": lambda: bpftrace.attached(target.pid, binary),
    }


def ns_a_send(target: Target) -> float:
    return float(target.ask("go", "ns").split()[1])


def shown(name: str, bare: list[float], measured: list[float], more: str = "") -> None:
    added = median(measured) - median(bare)
    print(f"{name:24}  {times_bare(in_pairs(bare, measured))}  +{added:.0f} ns{more}", flush=True)


def measure(processors: int, rounds: int, chosen: random.Random, folder: Path) -> None:
    """Print a row for each arm."""
    binary = program("pingpong", VERSION)
    settings = ("-procs", str(processors), "-sends", str(SENDS))
    with (
        Target.start(binary, *settings) as target,
        Target.start(binary, *settings, "-trace", str(folder / "go.trace")) as gos,
    ):
        bare, measured = [ns_a_send(target)], []
        for _ in range(rounds):
            measured.append(ns_a_send(gos))
            bare.append(ns_a_send(target))
        shown("Go's own tracer", bare, measured)
        gos.kill()
        for name, attached in chosen.sample(sorted(arms(target).items()), len(arms(target))):
            bare, measured, rates = [ns_a_send(target)], [], []
            for _ in range(rounds):
                with attached():
                    took_ns = ns_a_send(target)
                measured.append(took_ns)
                rates.append(Recorded.events * EVENT.itemsize / (SENDS * took_ns) * 1e3)
                bare.append(ns_a_send(target))
            events = f", {median(rates):.0f} MB/s" if name in ARMS else ""
            shown(name, bare, measured, events)
        target.kill()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="of each kind (default 7)")
    rounds = parser.parse_args().rounds
    chosen = random.Random(1)
    print("times as long as without a recording; the median, and 95 % of where it may lie")
    with tempfile.TemporaryDirectory() as folder:
        for processors in (1, 2):
            print(f"GOMAXPROCS={processors}")
            measure(processors, rounds, chosen, Path(folder))


if __name__ == "__main__":
    main()
