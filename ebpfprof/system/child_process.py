"""Child processes of ours: how they are forked, and what they keep."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from ebpfprof.system import signals

_STANDARD_FILES = 3
# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_NO_NEW_PRIVS = 38


def fork(child: Callable[[], NoReturn], *, ignores_signals: bool = False) -> int:
    """Fork and call `child` in the new process, which must not return; returns its pid.

    There signals do what they did before we began to count them. With `ignores_signals` none ends
    it that a terminal or a supervisor sends to all our processes.
    """
    with signals.Deferred():
        ours = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if pid == 0:
                _become(child, ours, ignores_signals=ignores_signals)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ours)


def start(
    name: str,
    work: Callable[..., object],
    fds: Sequence[int],
    *,
    new_session: bool = False,
    ends_with_us: bool = False,
) -> int:
    """Start a process that calls `work` and ends when that returns or raises; returns its pid.

    It is forked, not executed: a program of its own would have none of our capabilities, unless we
    are root. `ps` shows its `name`, of at most 15 characters. It ignores signals from terminals and
    supervisors. Of ours it holds no terminal, pipe, connection or folder, only the descriptors
    `fds`, whose numbers there are the arguments of `work`: 3, 4 and so on. With `ends_with_us` the
    kernel kills it when the thread ends that started it. Raises OSError if there may be no more
    processes.
    """

    def run() -> NoReturn:
        code = 1
        try:
            if ends_with_us:
                _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if new_session:
                os.setsid()
            _prctl(_PR_SET_NAME, name.encode())
            work(*_keep_only(fds))
            code = 0
        finally:
            os._exit(code)

    return fork(run, ignores_signals=True)


def become(program: str, *arguments: str) -> None:
    """Become another program, which gains no rights, with all our files. Returns if it can't be."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)  # root's programs have all capabilities otherwise
    with suppress(OSError):  # there is no such program, or we may not: the caller continues
        for fd in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):  # that of the list
                os.set_inheritable(fd, True)
        os.execve(program, (program, *arguments), {})


def _become(child: Callable[[], NoReturn], mask: set[Any], *, ignores_signals: bool) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (*signals.NUMBERS, signal.SIGQUIT):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_IGN if ignores_signals else signal.SIG_DFL)
        for number in () if ignores_signals else signals.IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        child()
    finally:
        os._exit(1)


def _keep_only(fds: Sequence[int]) -> range:
    """Close all files but `fds`; returns their new numbers. Standard files lead nowhere."""
    os.chdir("/")
    kept = range(_STANDARD_FILES, _STANDARD_FILES + len(fds))
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, kept.stop) for fd in fds]
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in range(_STANDARD_FILES):
        os.dup2(nowhere, number)
    for copy, number in zip(copies, kept, strict=True):
        os.dup2(copy, number, inheritable=False)
    os.closerange(kept.stop, os.sysconf("SC_OPEN_MAX"))
    return kept


def _prctl(option: int, value: int | bytes) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
