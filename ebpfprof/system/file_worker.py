"""A child process for accesses to files that may never return: a stuck child is left behind.

A process that opens, reads or even looks at a file of a file system that does not answer (NFS
without its server, FUSE) waits in the kernel, and no signal ends that. So a child does it. If it
gets stuck, another child goes on with the other requests.

    ebpfprof ──► the starter, which touches no file ──► child 1 (stuck), child 2, ...

The starter is forked before there are threads: a fork copies locks that other threads hold. It ends
when ebpfprof does, and so do its children; stuck ones end once their file system answers.
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
from functools import partial
from itertools import islice
from typing import Any, Final, NoReturn, Protocol

from ebpfprof.system import child_process, lean_start
from ebpfprof.system.closing import Closing
from ebpfprof.system.lean_start import Child

NAME: Final = "ebpfprof-files"
PATIENCE_S: Final = 3.0
_LEAST_PATIENCE_S: Final = 0.5
_MIN_PROGRESS_NS: Final = 1_000_000
_MAX_LEFT_BEHIND: Final = 32
_MAX_FDS: Final = 4
_MAX_CHUNK: Final = 1 << 20
_LENGTH: Final = struct.Struct("<I")
_PID: Final = struct.Struct("<i")


class FileTask(Protocol):
    """What a child does. It is made in the child, so that the starter stays small."""

    def begin(self) -> None:
        """Get ready for a batch of requests."""

    def answer(self, request: Any, fds: Sequence[int]) -> tuple[Any, Sequence[int]]:  # noqa: ANN401 - JSON
        """The answer to a request, which JSON must hold, and file descriptors to pass on and close.

        `fds` came with the request.
        """


class NoAnswerError(Exception):
    """The child does not answer this request, or ended over it, for `after_s` seconds."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"did not answer within {after_s:g} s")
        self.after_s = after_s


class FileWorker(Closing):
    """Sends requests to children. Several threads may use it; a context manager."""

    def __init__(self, make: Callable[[], FileTask], patience_s: float = PATIENCE_S) -> None:
        """Start the starter, whose children call `make`.

        A child is left behind once it has been blocked for `patience_s` without an answer. While it
        waits for a processor it is not blocked.
        """
        self._lock = threading.Lock()
        self._patience_s = patience_s
        self._child: _Child | None = None
        self._left: list[tuple[_Child, Any]] = []
        self._starter, theirs = socket.socketpair()
        starts = partial(_start_children, make)
        self._process: Child | None = lean_start.start(NAME, starts, [theirs.fileno()])
        theirs.close()

    def ask(self, request: Any, fds: Sequence[int] = ()) -> tuple[Any, list[int]]:  # noqa: ANN401 - JSON
        """Return the answer and the file descriptors with it. Raises NoAnswerError."""
        ((answer, given),) = self.ask_all([request], fds)
        if isinstance(answer, NoAnswerError):
            raise answer
        return answer, given

    def ask_all(
        self, requests: Sequence[Any], fds: Sequence[int] = ()
    ) -> list[tuple[Any, list[int]]]:
        """Return the answer to each request, or a NoAnswerError, and the file descriptors with it.

        All requests get `fds`. Each one without an answer halves the patience with the rest.
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
        """Requests that got no answer, and whose children answered or ended since."""
        with self._lock:
            late = [(child, request) for child, request in self._left if child.has_moved()]
            self._left = [each for each in self._left if each not in late]
            for child, _ in late:
                child.close()
            return [request for _, request in late]

    def close(self) -> None:
        """End the starter and the children; stuck ones are left behind."""
        with self._lock:
            for child in (self._child, *(child for child, _ in self._left)):
                if child:
                    child.close()
            self._child, self._left = None, []
            self._starter.close()
            process, self._process = self._process, None
        if process:
            process.wait()

    def _started(self) -> _Child | None:
        """A new child; None if too many are stuck already, or the starter has ended."""
        if len(self._left) >= _MAX_LEFT_BEHIND:
            return None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._starter, [b"1"], [theirs.fileno()])
            (pid,) = _PID.unpack(_exactly(self._starter, _PID.size))
            return _Child(ours, pid)
        except (OSError, EOFError):
            ours.close()
            return None


class _Child:
    """Our end of a child."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._socket = connection
        self._pid = pid

    def send(self, requests: Sequence[Any], fds: Sequence[int]) -> bool:
        """Send requests; False if the child has ended."""
        try:
            _send(self._socket, requests, fds)
        except OSError:
            return False
        return True

    def answers(self, patience_s: float) -> Iterator[tuple[Any, list[int]]]:
        """Yield answers as long as they come. Raises RuntimeError for a bug in the child."""
        while (answer := self._answer(patience_s)) is not None:
            yield answer

    def _answer(self, patience_s: float) -> tuple[Any, list[int]] | None:
        patience_ns = int(patience_s * 1e9)
        now_ns, (used_ns, delay_ns, _) = time.monotonic_ns(), self._scheduled()
        blocked_ns = 0
        end = select.poll()
        end.register(self._socket, select.POLLIN)
        while not end.poll((patience_ns - blocked_ns) / 1e6):
            before = now_ns, used_ns, delay_ns
            now_ns, (used_ns, delay_ns, is_runnable) = time.monotonic_ns(), self._scheduled()
            if used_ns - before[1] >= _MIN_PROGRESS_NS:
                blocked_ns = 0
            elif not is_runnable:
                blocked_ns += now_ns - before[0] - (delay_ns - before[2])
                if blocked_ns >= patience_ns:
                    return None
        try:
            said, fds = _receive(self._socket)
        except (OSError, EOFError):
            return None
        return child_process.result_of(said, NAME), fds

    def has_moved(self) -> bool:
        """Whether it has answered, or ended."""
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        return bool(readable.poll(0))

    def close(self) -> None:
        """Leave it; it ends when it next answers or waits for requests."""
        self._socket.close()

    def _scheduled(self) -> tuple[int, int, bool]:
        """Its CPU time and its time of waiting for a processor, in ns; whether it is runnable now.

        The kernel adds to the second when the wait ends (Linux kernel/sched/stats.h).
        """
        try:
            with open(f"/proc/{self._pid}/schedstat", "rb") as file:
                used_ns, delay_ns, _ = map(int, file.read().split())
            with open(f"/proc/{self._pid}/stat", "rb") as file:
                is_runnable = file.read().rpartition(b")")[2].split()[0] == b"R"
        except (OSError, ValueError, IndexError):
            return 0, 0, False  # it has ended
        return used_ns, delay_ns, is_runnable


def _start_children(make: Callable[[], FileTask], asked_fd: int) -> None:
    """What the starter does, until the other end is closed, or its process has ended."""
    asked = socket.socket(fileno=asked_fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # which leaves no zombies
    while True:
        message, fds, _, _ = socket.recv_fds(asked, 1, _MAX_FDS)
        if not message:
            return
        pid = os.fork()
        if not pid:
            asked.close()
            _answer_all(socket.socket(fileno=fds[0]), make)
        asked.sendall(_PID.pack(pid))
        for fd in fds:
            os.close(fd)


def _answer_all(asked: socket.socket, make: Callable[[], FileTask]) -> NoReturn:
    """What a child does, from the fork to its end."""
    try:
        task = make()
        while True:
            requests, fds = _receive(asked)
            task.begin()
            for request in requests:
                try:
                    answer, given = task.answer(request, fds)
                except Exception as error:
                    _send(asked, child_process.failure(error))
                    break
                _send(asked, {"result": answer}, given)
                for fd in given:
                    os.close(fd)
            for fd in fds:
                os.close(fd)
    finally:
        os._exit(0)


def _send(to: socket.socket, said: Any, fds: Sequence[int] = ()) -> None:  # noqa: ANN401 - JSON
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
