"""Starts children from a process that was forked when there was little in memory yet.

A child keeps all the memory that its parent had when it was forked: what the parent writes later,
both have. A service that has imported everything gives each long-lived child tens of megabytes in
that way. So the starter is forked first, and from it the children. A child imports what it needs.

    ebpfprof ──► the starter, which has imported next to nothing ──► file worker, helper, ...
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from ebpfprof.system import child_process

NAME: Final = "ebpfprof-start"
_MAX_REQUEST_BYTES: Final = 1 << 16
_MAX_FDS: Final = 64
_DONE: Final = b"0"


@dataclass(frozen=True, slots=True)
class Child:
    """A child of ours, or of the starter."""

    pid: int
    _pid_fd: int

    def wait(self) -> None:
        """Wait until it has ended; to be called once."""
        ended = select.poll()
        ended.register(self._pid_fd, select.POLLIN)
        ended.poll()
        os.close(self._pid_fd)
        with suppress(ChildProcessError):  # the starter's
            os.waitpid(self.pid, 0)


class _Starter:
    """Our end of the starter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._pid = child_process.start(NAME, _start_all, [theirs.fileno()], new_session=True)

    def ask(self, request: object, fds: Sequence[int] = ()) -> tuple[int, list[int]]:
        """A pid with a descriptor of it, or 0. Raises OSError if it can't be, or it was killed."""
        with self._lock:
            socket.send_fds(self._socket, [pickle.dumps(request)], fds)
            answer, given, _, _ = socket.recv_fds(self._socket, _MAX_REQUEST_BYTES, 1)
        if not answer:
            raise ConnectionResetError
        number = int(answer)
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number, given

    def close(self) -> None:
        self._socket.close()
        os.waitpid(self._pid, 0)


class _State:
    starter: _Starter | None = None


@contextmanager
def prepared() -> Iterator[None]:
    """In the block, start() has children started by a starter, which is forked now.

    To be called before much is imported, and before there are threads. What children have that run
    on when the block ends is theirs alone. Raises OSError.
    """
    starter = _State.starter = _Starter()
    try:
        yield
    finally:
        _State.starter = None
        starter.close()


def start(name: str, work: Callable[..., object], fds: Sequence[int]) -> Child:
    """Start a child in a session of its own; see child_process.start().

    If there is a starter, pickle must know `work`, and imports its module there. Raises OSError.
    """
    starter = _State.starter
    if starter:
        with suppress(ConnectionError):  # it was killed: we can do it, too
            pid, (pid_fd,) = starter.ask((name, pickle.dumps(work)), fds)
            return Child(pid, pid_fd)
    pid = child_process.start(name, work, fds, new_session=True)
    return Child(pid, os.pidfd_open(pid))


def do_everywhere(work: Callable[[], object]) -> None:
    """Call `work`, which pickle must know, here and in the starter, if there is one.

    So children that are started later have it. Raises what `work` does here.
    """
    starter = _State.starter
    if starter:
        with suppress(ConnectionError):  # it was killed, and starts nothing any more
            starter.ask(work)
    work()


def _start_all(asked_fd: int) -> None:
    """What the starter does, until the other end is closed, or its process has ended."""
    asked = socket.socket(fileno=asked_fd)
    running: dict[int, int] = {}
    while True:
        waiting = select.poll()
        for fd in (asked_fd, *running):
            waiting.register(fd, select.POLLIN)
        for fd, _ in waiting.poll():
            if fd != asked_fd:
                os.close(fd)
                os.waitpid(running.pop(fd), 0)
            elif not _answer(asked, running):
                return


def _answer(asked: socket.socket, running: dict[int, int]) -> bool:
    """Do what is asked; False if the other end is closed."""
    message, fds, _, _ = socket.recv_fds(asked, _MAX_REQUEST_BYTES, _MAX_FDS)
    if not message:
        return False
    request = pickle.loads(message)  # of our own process: nobody else has the other end
    given: list[int] = []
    try:
        if callable(request):
            request()
            said = _DONE
        else:
            name, work = request
            pid = child_process.start(name, partial(_work, work), fds, new_session=True)
            given = [os.pidfd_open(pid)]
            running[given[0]] = pid
            said = b"%d" % pid
    except OSError as error:
        said = b"%d" % -(error.errno or 1)
    finally:
        for fd in fds:
            os.close(fd)
    with suppress(OSError):  # it has ended meanwhile: the next read says so
        socket.send_fds(asked, [said], given)
    return True


def _work(pickled: bytes, *fds: int) -> None:
    """What a child does: the modules of its work are imported in it."""
    pickle.loads(pickled)(*fds)
