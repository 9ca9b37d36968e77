"""Starts a program, and stops it before its first instruction.

The program is a child process that we trace (ptrace(2)) until run(): at the end of execve() the
kernel stops it. Then its memory, its executable and its auxiliary vector are those of the new
program, and nothing of it has been executed, not even the dynamic loader. If ebpfprof dies in
between, the kernel kills it (PTRACE_O_EXITKILL).

run() either ends the tracing, or follows the child to the next program that it replaces itself by
(`sh -c ./prog`, `env A=1 ./prog`), at whose beginning it is stopped again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import queue
import select
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, Self

from ebpfprof.console.text import printable
from ebpfprof.errors import (
    AttachFailed,
    CommandNotFound,
    CommandNotRunnable,
    EbpfprofError,
    ExitCode,
    PermissionDenied,
    to_type,
)
from ebpfprof.system import child_process, signals
from ebpfprof.system.channel import ChannelError, MessageChannel
from ebpfprof.system.closing import Closing

# include/uapi/linux/ptrace.h
_CONT = 7
_DETACH = 17
_SETOPTIONS = 0x4200
_SEIZE = 0x4206
_LISTEN = 0x4208
_EVENT_EXEC = 4
_EVENT_STOP = 128
_O_TRACEEXEC = 1 << _EVENT_EXEC
_O_EXITKILL = 1 << 20

# Python calls signal handlers between instructions. A wait in C misses a signal that came just
# before it, or to another thread, so no wait of the main thread is longer than this.
_SIGNALS_S = 0.2

_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_ENDED = (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED)
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong)
_libc.ptrace.restype = ctypes.c_long


@dataclass(frozen=True, slots=True)
class User:
    """The user as whom a program is to run."""

    name: str
    uid: int
    gid: int
    home: str

    @classmethod
    def named(cls, name: str) -> User | None:
        """The user of that name, None if there is none."""
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            return None
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir)

    def become(self) -> None:
        """Take the user's groups and identity, for good. Raises PermissionError."""
        os.initgroups(self.name, self.gid)
        os.setgid(self.gid)
        os.setuid(self.uid)
        os.environ.update(HOME=self.home, USER=self.name, LOGNAME=self.name)


class LaunchedProgram(Closing):
    """A program that was started, stopped before its first instruction.

    A context manager: at its end a stopped child is killed; a running one keeps running.
    """

    def __init__(
        self,
        command: Sequence[str],
        user: User | None = None,
        *,
        on_forked: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the command, found as a shell does; return once it is stopped at its beginning.

        It has the environment, folder, files, signals and rights that ebpfprof was given.
        `on_forked` is called after the fork and before the tracer starts: rights that it drops the
        child keeps, and the tracer loses. Raises CommandNotFound, CommandNotRunnable,
        PermissionDenied or AttachFailed.
        """
        self._follows: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stops: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_stopped = threading.Event()
        self._is_left = False
        self._refusal: EbpfprofError | None = None
        self._status: int | None = None
        channel, theirs = MessageChannel.pair(command[0])
        with theirs:
            self.pid = child_process.fork(
                lambda: _become(command, user, channel, MessageChannel.to_parent(theirs.fileno()))
            )
            self._pidfd = os.pidfd_open(self.pid)
        self._tracer = threading.Thread(target=self._trace, args=(channel,), daemon=True)
        try:
            on_forked()
            self._tracer.start()
            if signals.interruptible(self.wait_until_stopped):
                return
            self._reap()
            raise self._refusal or _not_run(command[0], channel)
        except BaseException:  # Ctrl-C too: no stopped child may stay
            self._kill()
            self.close()
            raise
        finally:
            channel.close()

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped at the beginning of a program, until run()."""
        return self._is_stopped.is_set() and not self._is_left

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        end = select.poll()
        end.register(self._pidfd, select.POLLIN)
        return bool(end.poll(0))

    def run(self, *, follow: bool) -> None:
        """Let it run: to the beginning of its next program, or, without `follow`, untraced."""
        self._is_stopped.clear()
        self._follows.put(follow)

    def leave(self) -> None:
        """Stop following a running child; a stopped one keeps running, untraced."""
        self._is_left = True
        self._follows.put(False)  # it may begin its next program just now

    def wait_until_stopped(self) -> bool:
        """Wait until a child that is followed begins its next program; False if it has ended."""
        while True:
            with suppress(queue.Empty):  # wait again, after Python's signal handlers
                return self._stops.get(timeout=_SIGNALS_S)

    def send(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with suppress(ProcessLookupError):  # it has ended
            signal.pidfd_send_signal(self._pidfd, number)

    def wait(self) -> int:
        """Wait for its end; return its exit status as a shell does, 128 + N for a signal N."""
        signals.interruptible(self._wait_for_end)
        return self._reap()

    def _wait_for_end(self) -> None:
        end = select.poll()
        end.register(self._pidfd, select.POLLIN)
        while not end.poll(1000 * _SIGNALS_S):
            pass

    def close(self) -> None:
        """Kill it if it is stopped, and close its pidfd. May be called twice."""
        if self._pidfd < 0:
            return
        if self.is_stopped:
            self._kill()
        os.close(self._pidfd)
        self._pidfd = -1

    def _kill(self) -> None:
        self.send(signal.SIGKILL)
        if self._tracer.ident is not None:  # it was started
            self.run(follow=False)
            self._reap()

    def _reap(self) -> int:
        if self._status is None:
            self._tracer.join()
            _, status = os.waitpid(self.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            self._status = code if code >= 0 else 128 - code
        return self._status

    def _trace(self, channel: MessageChannel) -> None:
        """Trace the child, which only this thread can, until it ends or run() ends the tracing."""
        if _ptrace(_SEIZE, self.pid, _O_TRACEEXEC | _O_EXITKILL):
            with suppress(ChannelError):  # it was killed
                channel.send(None)
        elif (code := ctypes.get_errno()) and not self.has_ended:  # no zombie can be traced
            self._refusal = _not_traced(code)
            self.send(signal.SIGKILL)
        while (stop := self._next_stop()) is not None:
            number, event = stop & 0xFF, stop >> 8
            if event == _EVENT_EXEC and not self._is_left:
                if not self._hold():
                    return
            elif event == _EVENT_STOP and number in _STOPPING:
                _ptrace(_LISTEN, self.pid)  # stopped until SIGCONT, as if it weren't traced
            else:
                _ptrace(_CONT, self.pid, 0 if event else number)
        self._stops.put(False)

    def _next_stop(self) -> int | None:
        """Wait for the next stop: its signal, and above that its event; None once it has ended."""
        while True:
            # A child that has ended stays a zombie, so that no other process gets its pid.
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
            assert status is not None
            if status.si_code in _ENDED:
                return None
            # None if it was killed in between.
            if os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None:
                return status.si_status

    def _hold(self) -> bool:
        """Keep it stopped until run(); returns whether it is still traced then."""
        _ptrace(_SETOPTIONS, self.pid, _O_TRACEEXEC | _O_EXITKILL)
        self._is_stopped.set()
        self._stops.put(True)
        if not self._follows.get():
            _ptrace(_DETACH, self.pid)
            return False
        _ptrace(_SETOPTIONS, self.pid, _O_TRACEEXEC)
        _ptrace(_CONT, self.pid)
        return True


class SignalRelay:
    """Passes our signals on to a child, so that we outlive it. A context manager."""

    _NUMBERS = (
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGHUP,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
    )
    # A terminal sends these to its foreground process group, and so to the child as well.
    _OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)

    def __init__(self, child: LaunchedProgram) -> None:
        self._child = child
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in self._NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number not in self._OF_TERMINAL or not _in_foreground():
            self._child.send(number)


def _in_foreground() -> bool:
    """Whether our terminal sends the signals of its keys to us; False without a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _ptrace(request: int, pid: int, data: int = 0) -> bool:
    """Whether the request succeeded; it also fails if the process was killed meanwhile."""
    return bool(_libc.ptrace(request, pid, 0, data) == 0)


def _become(
    command: Sequence[str], user: User | None, parents: MessageChannel, channel: MessageChannel
) -> NoReturn:
    """In the child: wait until it is traced, then become the command, or send why it can't be.

    `parents` is the parent's end of the channel.
    """
    parents.close()
    with suppress(ChannelError):  # our parent has ended
        channel.receive()
        try:
            if user:
                user.become()
            os.execvp(command[0], list(command))
        except OSError as error:
            channel.send_failure(error)
        except ValueError:  # an empty name
            channel.send_failure(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    os._exit(ExitCode.COMMAND_NOT_FOUND)


def _not_traced(code: int) -> EbpfprofError:
    if code == errno.EPERM:
        return PermissionDenied(
            "The kernel does not let this user trace a program of its own (ptrace); a 3 in "
            f"{_YAMA} forbids it to all users. Start the program by itself, and attach to it:"
            + to_type("ebpfprof attach PID")
        )
    return AttachFailed(
        f"The program could not be traced: {os.strerror(code)}. Start it by itself, and attach to "
        f"it:{to_type('ebpfprof attach PID')}"
    )


def _not_run(command: str, channel: MessageChannel) -> EbpfprofError:
    """Why the command could not be executed, as its child says."""
    try:
        channel.result()
    except ChannelError:  # it can't say it any more
        return EbpfprofError(f"{printable(command)} was killed before it began.")
    except OSError as error:
        return _refused(command, error.errno or 0)
    return _refused(command, 0)


def _refused(command: str, code: int) -> EbpfprofError:
    shown = printable(command)
    if code in (errno.ENOENT, errno.ENOTDIR):
        if shutil.which(command) is None and not os.path.exists(command):
            return CommandNotFound(
                f"There is no program {shown}. One in the current folder is called ./NAME; sudo "
                "searches other folders than your shell does: give the whole path."
            )
        return CommandNotRunnable(
            f"{shown} exists, but the program that runs it does not: a script names that in its "
            "first line (#!), a binary names its dynamic loader."
        )
    if code == errno.EACCES:
        return CommandNotRunnable(
            f"{shown} may not be executed: it is a directory, lacks the right (chmod +x), or "
            "lies where this user or the mount (noexec) does not allow it."
        )
    if code == errno.ENOEXEC:
        return CommandNotRunnable(
            f"{shown} is neither a program for this machine nor a script whose first line names "
            "its interpreter (#!/bin/sh)."
        )
    return CommandNotRunnable(f"{shown} can't be executed: {os.strerror(code)}.")
