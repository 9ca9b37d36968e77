"""Another process gets the pid of a target that ended: it is never taken for the target."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ebpfprof.errors import TargetGone
from ebpfprof.process.file_opener import FileOpener
from ebpfprof.process.process import Target as Process
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.recorder import only_profile, recording
from tests.targets_run import Target

_SYS_CLONE3 = 435  # arch/x86/entry/syscalls/syscall_64.tbl


@contextmanager
def another_with_pid(pid: int, file: Path) -> Iterator[None]:
    """Run a program as process `pid`, which must be free; its input stays open meanwhile."""
    stdin, writer = os.pipe()
    reader, stdout = os.pipe()
    wanted = (ctypes.c_int * 1)(pid)
    # struct clone_args, include/uapi/linux/sched.h: with no flags, this is fork.
    numbers = [0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(wanted), 1, 0]
    arguments = ctypes.create_string_buffer(struct.pack("<11Q", *numbers))
    # PyDLL: the child must hold the interpreter's lock.
    made = ctypes.PyDLL(None, use_errno=True).syscall(_SYS_CLONE3, arguments, 88)
    if made == 0:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.execv(file, [str(file)])
    assert made == pid, os.strerror(ctypes.get_errno())
    try:
        assert os.read(reader, 64).startswith(b"ready ")
        yield
    finally:
        for fd in (stdin, stdout, reader, writer):
            os.close(fd)
        os.waitpid(pid, 0)


class Reusing(FileOpener):
    """Opens files of a target, of whose pid another process has taken possession meanwhile."""

    def __init__(self, target: Target, file: Path, held: ExitStack) -> None:
        self._target, self._file, self._held = target, file, held

    def open(self, link: str) -> int:
        self._target.kill()
        self._held.enter_context(another_with_pid(self._target.pid, self._file))
        return super().open(link)


def test_a_pid_reused_while_it_is_opened_is_noticed() -> None:
    ticker = program("ticker")
    with (
        Target.start(ticker) as target,
        ExitStack() as held,
        pytest.raises(TargetGone) as raised,
    ):
        Process(target.pid, Reusing(target, ticker, held))
    assert f"Nothing was recorded: process {target.pid} ended" in str(raised.value)


def test_a_pid_reused_while_it_is_recorded_is_noticed(tmp_path: Path) -> None:
    ticker = program("ticker")
    with Target.start(ticker) as target, recording(target.pid, tmp_path) as recorder:
        target.ask("wait", "done")
        recorder.send(signal.SIGSTOP)
        target.kill()
        with another_with_pid(target.pid, ticker):
            recorder.send(signal.SIGCONT)
            finished = recorder.finish()
            assert not has_probes(target.pid)
    assert finished.code == 0
    assert f"\nebpfprof: process {target.pid} ended; " in finished.stderr
    assert f"ended early: process {target.pid} ended" in only_profile(tmp_path).comments
