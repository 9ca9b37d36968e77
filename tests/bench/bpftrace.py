"""bpftrace, doing by symbol what we do: profiles of waits and of locks, for comparison."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from symbolizer import ElfFile, GoBinary

INT3 = 0xCC
DEADLINE_S = 60

# gopark has g in R14, ready has it in AX; both by symbol, that is, on the first instruction.
BLOCK = """
uprobe:{program}:runtime.gopark {{ @parked[reg("r14")] = nsecs; }}
uprobe:{program}:runtime.ready /@parked[reg("ax")]/ {{
    @delay[ustack(32)] = sum(nsecs - @parked[reg("ax")]);
    @count[ustack(32)] = count();
    delete(@parked[reg("ax")]);
}}
"""

# Who woke whom, as an off-wake graph: the waker's stack is that of its thread, g0's, since ready
# runs there; the goroutine's own is out of reach.
WAKERS = """
uprobe:{program}:runtime.gopark {{
    @parked[reg("r14")] = nsecs;
    @waits[reg("r14")] = ustack(32);
}}
uprobe:{program}:runtime.ready /@parked[reg("ax")]/ {{
    @delay[@waits[reg("ax")], ustack(32)] = sum(nsecs - @parked[reg("ax")]);
    @count[@waits[reg("ax")], ustack(32)] = count();
    delete(@parked[reg("ax")]);
    delete(@waits[reg("ax")]);
}}
"""

# semacquire1 is where a lock that is not free leads to, with g in R14.
MUTEX = """
uprobe:{program}:runtime.semacquire1 {{ @came[reg("r14")] = nsecs; }}
uprobe:{program}:runtime.ready /@came[reg("ax")]/ {{
    @delay[ustack(32)] = sum(nsecs - @came[reg("ax")]);
    @count[ustack(32)] = count();
    delete(@came[reg("ax")]);
}}
"""


@contextmanager
def attached(
    pid: int, program: Path, script: str = BLOCK, *, probed: str = "runtime.ready"
) -> Iterator[float]:
    """bpftrace on process `pid`, a static build of `program`; yields the seconds it took.

    `probed` is a function on whose first instruction the script has a probe.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        ["bpftrace", "-p", str(pid), "-e", script.format(program=program)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _await_probe(process, pid, program, probed)
        yield time.monotonic() - started
    finally:
        process.kill()
        process.communicate()


def _await_probe(process: subprocess.Popen[str], pid: int, program: Path, probed: str) -> None:
    """Wait until the breakpoint stands in the target's memory."""
    with ElfFile.open(program) as elf:
        (ready,) = GoBinary.open(elf).functions_named(probed)
    until = time.monotonic() + DEADLINE_S
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        while os.pread(memory, 1, ready.entry)[0] != INT3:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"bpftrace did not attach: {process.communicate()[1]}")
            time.sleep(0.002)
    finally:
        os.close(memory)
