"""A process within exec, which has begun and not ended."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.errors import EbpfprofError
from ebpfprof.process.process import Target, TargetEnd
from tests.kernel.unanswered import HeldPart, held_from
from tests.kernel.unharmed import await_true
from tests.recorder import DEADLINE_S
from tests.targets_run import Target as Running

TEXT, DATA, PAGE_BYTES = 0x400000, 0x600000, 4096
DATA_OFFSET = 1 << 20
"""So far behind the headers that the kernel does not read it with them."""
# Its first thread ends at a line; another one executes cat at the next line.
LEAVING = """
import ctypes, os, sys, threading
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
def run():
    sys.stdin.readline()
    os.execv("/bin/cat", ["cat"])
threading.Thread(target=run).start()
ctypes.CDLL(None).syscall(60, 0)  # exit, of this thread alone
"""
PAUSE = b"\xb8\x22\0\0\0\x0f\x05\xeb\xf7"  # mov $34, %eax; syscall; jmp to the mov


def waiting_program() -> bytes:
    """An ELF program that sleeps; for exec the kernel has to read the page at DATA_OFFSET."""
    header = struct.pack(
        "<16s2HI3QI6H",
        b"\x7fELF\2\1\1",
        *(2, 62, 1, TEXT + PAGE_BYTES, 64, 0, 0, 64, 56, 2, 0, 0, 0),  # EXEC, x86_64
    )
    text = struct.pack("<2I6Q", 1, 5, 0, TEXT, TEXT, 2 * PAGE_BYTES, 2 * PAGE_BYTES, PAGE_BYTES)
    # The rest of its page is to be zero, which takes a write to the page.
    data = struct.pack("<2I6Q", 1, 6, DATA_OFFSET, DATA, DATA, 8, 64, PAGE_BYTES)
    contents = bytearray(DATA_OFFSET + PAGE_BYTES)
    contents[: 64 + 2 * 56] = header + text + data
    contents[PAGE_BYTES : PAGE_BYTES + len(PAUSE)] = PAUSE
    return bytes(contents)


@contextmanager
def within_exec(path: Path) -> Iterator[tuple[int, HeldPart]]:
    """A process whose exec continues when the test says so; its pid."""
    with held_from(path, waiting_program(), DATA_OFFSET // 2) as part:
        process = subprocess.Popen(["/bin/sh", "-c", f"exec '{path}'"])
        try:
            assert part.is_wanted.wait(DEADLINE_S)
            assert not any(Path(f"/proc/{process.pid}/auxv").read_bytes())
            yield process.pid, part
        finally:
            part.goes_on.set()
            process.kill()
            process.wait()


def test_a_process_within_exec_is_opened_once_its_program_runs(tmp_path: Path) -> None:
    path = tmp_path / "late"
    with within_exec(path) as (pid, part), ThreadPoolExecutor(1) as pool:
        opening = pool.submit(Target, pid)
        with pytest.raises(TimeoutError):
            opening.result(0.3)
        part.goes_on.set()
        with opening.result(DEADLINE_S) as target:
            assert target.exe_name == str(path)
            assert target.load_bias(TEXT + PAGE_BYTES) == 0
            assert target.ending() is None


def test_a_process_whose_first_thread_has_ended_continues_and_may_call_exec() -> None:
    """As in each exec of another thread: the first one ends before."""
    with (
        Running.start(Path(sys.executable), "-c", LEAVING) as running,
        Target(running.pid) as target,
    ):
        status = Path(f"/proc/{running.pid}/status")
        running.say("leave")
        await_true(lambda: "\nState:\tZ" in status.read_text(), "its first thread does not end")
        assert target.ending() is None
        running.say("exec")
        await_true(lambda: target.ending() is not None, "it does not call exec")
        assert target.ending() == TargetEnd(
            f"process {running.pid} replaced itself by another program (exec)", is_exec=True
        )
        running.kill()
        assert target.ending() == TargetEnd(f"process {running.pid} ended")


def test_a_process_that_stays_within_exec_is_an_error(tmp_path: Path) -> None:
    with (
        within_exec(tmp_path / "late") as (pid, _),
        pytest.raises(EbpfprofError, match=f"^Process {pid} has not begun to run its program"),
    ):
        Target(pid)
