"""ebpfprof in a process of its own, switched on and off by lines of input.

    python -m tests.bench.liverecorder OPTIONS

OPTIONS are those of profilers.options.Options, as JSON, and `dispatches` of BpfProgram. Prints
"ready PID" once the programs are loaded, then obeys the lines that it reads:

    add PID       opens a process; prints "added"
    start PID     records it; prints "started"
    stop PID      stops that; prints "stopped"
    events PID    prints "events COUNT STACKS DEPTH": recorded so far, in that many stacks, the
                  deepest of which has that many frames
    cost PID      prints "cost SPENT USED": the CPU time (ns) that recording it took so far, as it
                  is reported, and that the process used meanwhile
    ways PID      prints "ways EVERY EIGHTH WINDOWS COUNT": for how long (ns) so far every wait was
                  recorded, one in eight, and one in eight in windows; and the number of windows
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from ebpfprof.kernel.program import BpfProgram
from ebpfprof.overhead.cost import Cost
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits.coverage import WaitsCoverage
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.reports import ProcessSums
from ebpfprof.recording.target import LiveTarget
from tests.kernel.kernel_state import helpers, holders
from tests.targets_run import Target

_CPUCLOCK_SCHED: Final = 2  # include/linux/posix-timers_types.h


class LiveRecorder:
    """Such a process, as others see it."""

    def __init__(self, held: ExitStack, **options: Any) -> None:  # noqa: ANN401 (as Options has it)
        """Start it; it ends with `held`."""
        arguments = ("-m", "tests.bench.liverecorder", json.dumps(options))
        self._process = held.enter_context(Target.start(Path(sys.executable), *arguments))

    @property
    def pid(self) -> int:
        """Of the process that holds the programs."""
        return self._process.pid

    def cpu_ns(self) -> int:
        """The CPU time of that process and of those that keep its probes, until now."""
        ended = [psutil.Process(helper).cpu_times() for helper in helpers(self.pid)]
        ended_s = sum(times.children_user + times.children_system for times in ended)
        return round(1e9 * ended_s) + sum(map(cpu_ns, (self.pid, *holders(self.pid))))

    def order(self, order: str, pid: int) -> list[int]:
        """Give an order, and return the numbers of its answer."""
        return [int(word) for word in self._process.ask(f"{order} {pid}", order[:3]).split()[1:]]


def cpu_ns(pid: int) -> int:
    """The CPU time of a process, all its threads, until now."""
    return time.clock_gettime_ns(~pid << 3 | _CPUCLOCK_SCHED)


def main() -> int:
    targets: dict[int, LiveTarget] = {}
    starts: dict[int, ProcessSums] = {}
    options: dict[str, Any] = json.loads(sys.argv[1])
    options["kinds"] = tuple(options["kinds"])
    BpfProgram.dispatches = options.pop("dispatches", True)
    with LiveSession(Options(**options)) as session:
        print("ready", os.getpid(), flush=True)
        for line in sys.stdin:
            order, pid = line.split()[0], int(line.split()[1])
            match order:
                case "add":
                    targets[pid] = session.add(pid)
                    answer = "added"
                case "start":
                    starts.setdefault(pid, session.start(targets[pid]))
                    answer = "started"
                case "stop":
                    session.stop(targets[pid])
                    answer = "stopped"
                case "events":
                    sums = session.sums(targets[pid])
                    found = session.report(sums, starts[pid]).profiles[0].samples
                    count = sum(sample.values[0] for sample in found)
                    deepest = max((len(sample.locations) for sample in found), default=0)
                    answer = f"events {count} {len(found)} {deepest}"
                case "cost":
                    overhead = session.report(session.sums(targets[pid]), starts[pid]).overhead
                    assert overhead
                    spent = Cost(overhead.hits, overhead.samples, overhead.hit_ns)
                    answer = f"cost {spent.ns:.0f} {overhead.cpu_ns}"
                case "ways":
                    coverage = session.report(session.sums(targets[pid])).coverage
                    assert isinstance(coverage, WaitsCoverage)
                    times = coverage.every_ns, coverage.eighth_ns, coverage.windows_ns
                    answer = " ".join(map(str, ("ways", *times, coverage.windows)))
                case _:
                    raise ValueError(f"no such order: {line!r}")
            print(answer, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
