"""ebpfprof's CPU profile in a process of its own, switched on and off by lines of input.

    python -m tests.bench.cpurecorder HZ

Prints "ready PID" once the program is loaded, then obeys the lines that it reads:

    add PID       opens a process; prints "added"
    start PID     records it; prints "started NS", the processor time that this process has used
    stop PID      stops that; prints "stopped NS"
    samples PID   prints "samples COUNT" that were taken of it so far
"""

from __future__ import annotations

import os
import sys
import time

from ebpfprof.live import LiveSession, LiveTarget
from ebpfprof.options import Options


def main() -> int:
    targets: dict[int, LiveTarget] = {}
    with LiveSession(Options(kinds=("cpu",), hz=int(sys.argv[1]))) as session:
        print("ready", os.getpid(), flush=True)
        for line in sys.stdin:
            order, pid = line.split()[0], int(line.split()[1])
            match order:
                case "add":
                    targets[pid] = session.add(pid)
                    answer = "added"
                case "start":
                    session.start(targets[pid])
                    answer = f"started {time.process_time_ns()}"
                case "stop":
                    session.stop(targets[pid])
                    answer = f"stopped {time.process_time_ns()}"
                case "samples":
                    (profile,) = session.snapshot(targets[pid]).profiles
                    answer = f"samples {sum(sample.values[0] for sample in profile.samples)}"
                case _:
                    raise ValueError(f"no such order: {line!r}")
            print(answer, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
