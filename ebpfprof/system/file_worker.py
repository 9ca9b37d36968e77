"""A child process for what may never return: it is left behind if it does not answer.

Who opens, reads or even looks at a file of a file system that does not answer (NFS without its
server, FUSE) waits in the kernel, and no signal ends that. So a child does it. One that is stuck is
not waited for: another one goes on with the rest.

    we ──► the starter, which touches no file ──► child 1 (stuck), child 2, ...

The starter is forked before there are threads, which a fork would copy in whatever state they are.
It ends when we do, and so do its children: those that are stuck once their file system answers.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NoReturn, Protocol, Self

from ebpfprof.system import signals
from ebpfprof.system.child_process import leave_the_others

NAME: Final = "ebpfprof-files"
PATIENCE_S: Final = 3.0
_LEAST_PATIENCE_S: Final = 0.5
_MIN_PROGRESS_NS: Final = 1_000_000
_MAX_LEFT_BEHIND: Final = 32
_MAX_FDS: Final = 4
_MAX_CHUNK: Final = 1 << 20
_LENGTH: Final = struct.Struct("<I")
_CPUCLOCK_SCHED = 2  # include/linux/posix-timers_types.h


class FileTask(Protocol):
    """What a child does. It is made in the starter, so that its modules are imported once."""

    def begin(self) -> None:
        """Called before each batch of requests."""

    def answer(self, request: Any, fds: Sequence[int]) -> tuple[Any, Sequence[int]]:  # noqa: ANN401
        """Answer a request: what JSON can hold, and descriptors, which are passed on and closed."""


class NoAnswerError(Exception):
    """The child does not answer this request, or ended over it. `after_s` is how long we waited."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"did not answer within {after_s:g} s")
        self.after_s = after_s


class FileWorker:
    """Asks children. Safe to be used by several threads; a context manager."""

    def __init__(self, make: Callable[[], FileTask], patience_s: float = PATIENCE_S) -> None:
        """Start the starter; `make` is called there, when a child is needed first.

        A child that neither answers within `patience_s` nor gets on with anything is left behind.
        """
        self._lock = threading.Lock()
        self._patience_s = patience_s
        self._child: _Child | None = None
        self._left: list[tuple[_Child, Any]] = []
        self._starter, theirs = socket.socketpair()
        # Not a program of its own: that would have none of our capabilities, unless we are root.
        self._pid = signals.fork(lambda: _start_children(theirs, make), ignores=True)
        theirs.close()

    def ask(self, request: Any, fds: Sequence[int] = ()) -> tuple[Any, list[int]]:  # noqa: ANN401
        """Return the answer and the descriptors that come with it. Raises NoAnswerError."""
        ((answer, given),) = self.ask_all([request], fds)
        if isinstance(answer, NoAnswerError):
            raise answer
        return answer, given

    def ask_all(
        self, requests: Sequence[Any], fds: Sequence[int] = ()
    ) -> list[tuple[Any, list[int]]]:
        """Return the answer to each request, or a NoAnswerError, and what descriptors come with it.

        All of them get `fds`. With each that is not answered the patience with the rest is halved.
        """
        patience_s = self._patience_s
        found: list[tuple[Any, list[int]]] = []
        with self._lock:
            while len(found) < len(requests):
                child = self._child = self._child or self._started()
                if child and child.send(requests[len(found) :], fds):
                    found += islice(child.answers(patience_s), len(requests) - len(found))
                if len(found) == len(requests):
                    break
                if child:
                    self._left.append((child, requests[len(found)]))
                    self._child = None
                found.append((NoAnswerError(patience_s), []))
                patience_s = max(patience_s / 2, _LEAST_PATIENCE_S)
        return found

    def answered_late(self) -> list[Any]:
        """Requests that were given up, and whose children got on or ended since."""
        with self._lock:
            late = [(child, request) for child, request in self._left if child.has_moved()]
            self._left = [each for each in self._left if each not in late]
            for child, _ in late:
                child.close()
            return [request for _, request in late]

    def close(self) -> None:
        """End it; what is stuck is not waited for."""
        with self._lock:
            for child in (self._child, *(child for child, _ in self._left)):
                if child:
                    child.close()
            self._child, self._left = None, []
            self._starter.close()
            pid, self._pid = self._pid, 0
        if pid:
            os.waitpid(pid, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> _Child | None:
        """A new child; None if too many are stuck already, or the starter is gone."""
        if len(self._left) >= _MAX_LEFT_BEHIND:
            return None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._starter, [b"1"], [theirs.fileno()])
            return _Child(ours, self._pid)
        except OSError:
            ours.close()
            return None


class _Child:
    """Our end of a child."""

    def __init__(self, connection: socket.socket, starter_pid: int) -> None:
        self._socket = connection
        self._pid = starter_pid  # which may have much to import, until the child tells its own

    def send(self, requests: Sequence[Any], fds: Sequence[int]) -> bool:
        """Ask; False if the child is gone."""
        try:
            _send(self._socket, requests, fds)
        except OSError:
            return False
        return True

    def answers(self, patience_s: float) -> Iterator[tuple[Any, list[int]]]:
        """Yield answers as long as they come. Raises RuntimeError for a bug in there."""
        while (answer := self._answer(patience_s)) is not None:
            yield answer

    def _answer(self, patience_s: float) -> tuple[Any, list[int]] | None:
        used_ns = self._cpu_ns()
        end = select.poll()
        end.register(self._socket, select.POLLIN)
        while not end.poll(1000 * patience_s):
            before_ns, used_ns = used_ns, self._cpu_ns()
            if used_ns - before_ns < _MIN_PROGRESS_NS:
                return None
        try:
            said, fds = _receive(self._socket)
        except (OSError, EOFError):
            return None
        if "pid" in said:
            self._pid = said["pid"]
            return self._answer(patience_s)
        if "bug" in said:
            raise RuntimeError(f"{NAME}: {said['bug']}")
        return said["answer"], fds

    def has_moved(self) -> bool:
        """Whether it has answered, or ended."""
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        return bool(readable.poll(0))

    def close(self) -> None:
        """Leave it; it ends when it comes to answer, or to ask for more."""
        self._socket.close()

    def _cpu_ns(self) -> int:
        try:
            return time.clock_gettime_ns(~self._pid << 3 | _CPUCLOCK_SCHED)
        except OSError:
            return 0


def _start_children(asked: socket.socket, make: Callable[[], FileTask]) -> NoReturn:
    """What the starter does, from the fork to its end."""
    try:
        os.setsid()
        (fd,) = leave_the_others(NAME, [asked.fileno()])
        starter = socket.socket(fileno=fd)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # which leaves no zombies
        work: FileTask | None = None
        while True:
            message, fds, _, _ = socket.recv_fds(starter, 1, _MAX_FDS)
            if not message:
                break  # the other end is closed, or its process is gone
            work = work or make()
            if not os.fork():
                starter.close()
                _answer_all(socket.socket(fileno=fds[0]), work)
            for fd in fds:
                os.close(fd)
    finally:
        os._exit(0)


def _answer_all(asked: socket.socket, work: FileTask) -> NoReturn:
    """What a child does, from the fork to its end."""
    try:
        _send(asked, {"pid": os.getpid()})
        while True:
            requests, fds = _receive(asked)
            work.begin()
            for request in requests:
                try:
                    answer, given = work.answer(request, fds)
                except Exception as error:  # a bug: here nobody would see it
                    _send(asked, {"bug": repr(error)})
                    break
                _send(asked, {"answer": answer}, given)
                for fd in given:
                    os.close(fd)
            for fd in fds:
                os.close(fd)
    finally:
        os._exit(0)


def _send(to: socket.socket, said: Any, fds: Sequence[int] = ()) -> None:  # noqa: ANN401
    """Raises OSError if the other end is closed."""
    data = json.dumps(said).encode()
    socket.send_fds(to, [_LENGTH.pack(len(data))], fds)
    to.sendall(data)


def _receive(asked: socket.socket) -> tuple[Any, list[int]]:
    """Raises EOFError or OSError if the other end is closed."""
    head, fds, _, _ = socket.recv_fds(asked, _LENGTH.size, _MAX_FDS)
    head += _exactly(asked, _LENGTH.size - len(head)) if head else b""
    if not head:
        raise EOFError
    return json.loads(_exactly(asked, _LENGTH.unpack(head)[0])), fds


def _exactly(asked: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = asked.recv(min(size - len(data), _MAX_CHUNK))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)
