"""From the command to the first recorded event: a Go program of some 100 MB, beside bpftrace.

    python -m tests.bench.bench_attach

Fails if ebpfprof takes longer than half a second.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.bench import bpftrace
from tests.bench.bigprogram import big_program
from tests.recorder import recording
from tests.targets_run import Target
from tests.toolchains import toolchain

TURNS = 7
LIMIT_S = 0.5


def attach_s(pid: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        with recording(pid, Path(folder)) as recorder:
            taken = time.monotonic() - started
            recorder.interrupt()
            recorder.finish()
    return taken


def bpftrace_s(pid: int, program: Path) -> float:
    with bpftrace.attached(pid, program) as taken:
        return taken


def main() -> int:
    program = big_program(toolchain("1.27"))
    with Target.start(program) as target:
        ours = [attach_s(target.pid) for _ in range(TURNS)]
        theirs = [bpftrace_s(target.pid, program) for _ in range(TURNS)]
    print(f"attach to a Go program of {program.stat().st_size / 1e6:.0f} MB, median of {TURNS}")
    print(f"ebpfprof  {median(ours):.2f} s")
    print(f"bpftrace  {median(theirs):.2f} s")
    return 0 if median(ours) <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
