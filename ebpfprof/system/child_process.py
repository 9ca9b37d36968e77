"""Child processes of ours: how they are forked, what they keep, and how they tell of their work."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from ebpfprof import errors
from ebpfprof.system import signals
from ebpfprof.system.open_files import too_many

_STANDARD_FILES = 3
# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_NO_NEW_PRIVS = 38

Outcome = dict[str, Any]
"""How work went, as JSON can hold it: "result", or "error" and "message", or "bug"."""


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
    with suppress(OSError):  # there is no such program, or we may not: the caller goes on
        for fd in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):  # that of the list
                os.set_inheritable(fd, True)
        os.execve(program, (program, *arguments), {})


def outcome(work: Callable[[], object]) -> Outcome:
    """Do the work; returns how it went, for another process."""
    try:
        return {"result": work()}
    except Exception as error:
        return failure(error)


def failure(error: Exception) -> Outcome:
    """The outcome of work that raised `error`."""
    error = too_many(error) or error
    if isinstance(error, errors.EbpfprofError):
        return {"error": type(error).__name__, "message": str(error)}
    return {"bug": repr(error)}  # nothing else would show it


def result_of(outcome: Outcome, worker: str, bug: type[Exception] = RuntimeError) -> Any:  # noqa: ANN401 - JSON
    """What the work of another process returned; raises what it raised.

    An exception that is none of ebpfprof.errors becomes a `bug`, whose text begins with `worker`.
    """
    if "error" in outcome:
        raise getattr(errors, outcome["error"])(outcome["message"])
    if "bug" in outcome:
        raise bug(f"{worker} failed: {outcome['bug']}.")
    return outcome["result"]


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
