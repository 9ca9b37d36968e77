"""From the command to the first recorded event: a Go program of about 100 MB, beside bpftrace.

    python -m tests.bench.bench_attach

The first time since the machine booted, when nothing has been compiled (kernel.program_cache), and
again. Fails if ebpfprof takes longer than half a second then. Last, the CPU time of ebpfprof itself
in default recordings.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from ebpfprof.kernel import program_cache
from tests.bench import bpftrace
from tests.bench.bigprogram import big_program
from tests.recorder import COMMAND, recording
from tests.targets_run import Target
from tests.toolchains import toolchain

TURNS = 7
FEW_TURNS = 3
LENGTHS_S = (1, 10, 30)
LIMIT_S = 0.5


def attach_s(pid: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        with recording(pid, Path(folder)) as recorder:
            taken = time.monotonic() - started
            recorder.interrupt()
            recorder.finish()
    return taken


def cpu_s(pid: int, duration_s: int) -> float:
    """The CPU time of a whole default recording, with all processes of ebpfprof."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [*COMMAND, "--pid", str(pid), "--duration", str(duration_s)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bpftrace_s(pid: int, program: Path) -> float:
    with bpftrace.attached(pid, program) as taken:
        return taken


def main() -> int:
    program = big_program(toolchain("1.27"))
    with Target.start(program) as target:
        first, again = [], []
        for _ in range(TURNS):
            shutil.rmtree(program_cache.FOLDER, ignore_errors=True)
            first.append(attach_s(target.pid))
            again.append(attach_s(target.pid))
        spent = {
            length: [cpu_s(target.pid, length) for _ in range(FEW_TURNS)] for length in LENGTHS_S
        }
        theirs = [bpftrace_s(target.pid, program) for _ in range(TURNS)]
    print(f"attach to a Go program of {program.stat().st_size / 1e6:.0f} MB, median of {TURNS}")
    print(f"ebpfprof, the first time  {median(first):.2f} s")
    print(f"ebpfprof, again           {median(again):.2f} s")
    print(f"bpftrace                  {median(theirs):.2f} s")
    for length, times in spent.items():
        print(f"CPU time of ebpfprof, in a default recording of {length} s: {median(times):.2f} s")
    return 0 if median(again) <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
