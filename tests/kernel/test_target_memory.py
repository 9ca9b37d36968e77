"""The memory of a target, read from outside: only that of the program that was opened."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.goroutines.parked import parked_goroutines
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.process.process import Target as Process
from tests.builds import NEWEST
from tests.kernel.parked_program import running
from tests.targets_run import Target

SHELL = Path("/bin/sh")


def test_reading_an_ended_target_raises_target_gone() -> None:
    with running(NEWEST, "plain") as run:
        memory = run.go.target.memory
        run.target.kill()
        with pytest.raises(TargetGone):
            memory.read(run.go.binary.text_start + run.go.load_bias, 8)
        with pytest.raises(TargetGone):
            parked_goroutines(run.go)


def test_structs_at_addresses_of_nothing_are_read_as_zeros_until_the_target_ends() -> None:
    kind, addresses = np.dtype("<u8"), np.array([0, 8, 1 << 63], np.uint64)
    with running(NEWEST, "plain") as run:
        memory = run.go.target.memory
        assert memory.read_records(addresses, kind).tolist() == [0, 0, 0]
        text = np.array([0, run.go.binary.text_start + run.go.load_bias], np.uint64)
        assert memory.read_records(text, kind)[1] != 0
        run.target.kill()
        with pytest.raises(TargetGone):
            memory.read_records(addresses, kind)


def test_memory_is_not_read_after_an_exec() -> None:
    script = "echo ready; read line; exec cat"
    with Target.start(SHELL, "-c", script, ready="ready") as target, ExitStack() as held:
        own, late = (held.enter_context(Process(target.pid)) for _ in range(2))
        memory = own.memory
        assert memory.read(code_of(target.pid), 8)
        target.say("go")
        target.ask("cat runs", "cat runs")
        with pytest.raises(TargetGone):
            memory.read(code_of(target.pid), 8)
        with pytest.raises(TargetGone):
            _ = late.memory


def test_unmapped_memory_is_refused() -> None:
    with Target.start(SHELL, "-c", "echo ready; read line", ready="ready") as target:
        with Process(target.pid) as own:
            memory = own.memory
            hole = hole_of(target.pid)
            assert memory.read(hole - 8, 8)
            for address in (hole - 4, hole, 0, 1 << 47, (1 << 64) - 8, -8, 1 << 70):
                with pytest.raises(UnreadableMemory):
                    memory.read(address, 8)
        with pytest.raises(UnreadableMemory):
            memory.read(hole - 8, 8)
        target.say("end")


def test_memory_is_opened_for_reading_only() -> None:
    with Target.start(SHELL, "-c", "echo ready; read line", ready="ready") as target:
        with Process(target.pid) as own:
            _ = own.memory
            memory = f"/proc/{target.pid}/mem"
            links = {int(fd.name): fd for fd in Path("/proc/self/fd").iterdir()}
            (fd,) = (number for number, fd in links.items() if _leads_to(fd) == memory)
            assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        target.say("end")


def _leads_to(link: Path) -> str:
    with suppress(FileNotFoundError):  # that of the listing itself
        return os.readlink(link)
    return ""


def code_of(pid: int) -> int:
    """Where the first executable mapping of a process begins."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return int(next(span for span, flags, *_ in lines if "x" in flags).split("-")[0], 16)


def hole_of(pid: int) -> int:
    """Where a mapping of a process ends and no other begins."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    spans = [[int(end, 16) for end in line.split()[0].split("-")] for line in lines]
    return next(end for (_, end), (start, _) in pairwise(spans) if start > end)
