"""A child process for accesses to files that may never return: a stuck child is left behind.

A process that opens, reads or stats a file of a file system that does not answer (NFS without its
server, FUSE) waits in the kernel, and no signal ends that. So a child does it. If the child gets
stuck, another one continues with the other requests.

    ebpfprof ──► the starter, which touches no file ──► child 1 (stuck), child 2, ...

The starter is forked before there are threads: a fork copies locks that other threads hold. It ends
when ebpfprof does, and so do its children; stuck ones end once their file system answers.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NoReturn, Protocol

from ebpfprof.system import lean_start
from ebpfprof.system.channel import ChannelError, Frame, MessageChannel
from ebpfprof.system.closing import Closing
from ebpfprof.system.lean_start import Child, name_of, named

NAME: Final = "ebpfprof-files"
PATIENCE_S: Final = 3.0
_LEAST_PATIENCE_S: Final = 0.5
_MIN_PROGRESS_NS: Final = 1_000_000
_MAX_LEFT_BEHIND: Final = 32


class FileTask(Protocol):
    """What a child does. It is made in the child, so that the starter stays small."""

    def begin(self) -> None:
        """Get ready for a batch of requests."""

    def answer(self, request: Any, fds: Sequence[int]) -> Frame:  # noqa: ANN401 - JSON
        """The answer to a request; file descriptors in it are passed on and closed.

        `fds` came with the request. FileWorker.ask() raises what this raises.
        """


class NoAnswerError(Exception):
    """The child does not answer this request, or ended over it, for `after_s` seconds."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"did not answer within {after_s:g} s")
        self.after_s = after_s


Answer = Frame | OSError | NoAnswerError
"""What a child answered, or the OSError that FileTask.answer() raised there."""


class FileWorker(Closing):
    """Sends requests to children. Several threads may use it; a context manager."""

    def __init__(
        self,
        make: Callable[..., FileTask],
        *arguments: object,
        patience_s: float = PATIENCE_S,
        most_left: int = _MAX_LEFT_BEHIND,
    ) -> None:
        """Start the starter, whose children call `make(*arguments)`.

        `make` is a class or function of a module, and the arguments are JSON. A child is left
        behind once it has been blocked for `patience_s` without an answer. While it waits for a
        processor it is not blocked. With `most_left` children left behind no request has an answer.
        """
        self._lock = threading.Lock()
        self._patience_s, self._most_left = patience_s, most_left
        self._child: _Child | None = None
        self._left: list[tuple[_Child, Any]] = []
        self._starter, theirs = MessageChannel.pair(NAME)
        task = [name_of(make), *arguments]
        with theirs:
            self._process: Child | None = lean_start.start(
                NAME, _start_children, [theirs.fileno()], task
            )

    def ask(self, request: Any, fds: Sequence[int] = ()) -> Frame:  # noqa: ANN401 - JSON
        """Return the answer. Raises NoAnswerError, or what the child raised."""
        (answer,) = self.ask_all([request], fds)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask_all(self, requests: Sequence[Any], fds: Sequence[int] = ()) -> list[Answer]:
        """Return the answer to each request. Raises any other error than OSError of the child.

        All requests get `fds`. Each request without an answer halves the patience with the rest.
        """
        patience_s = self._patience_s
        answers: list[Answer] = []
        with self._lock:
            while len(answers) < len(requests):
                child = self._child = self._child or self._started()
                if child and child.send(requests[len(answers) :], fds):
                    answers += islice(child.answers(patience_s), len(requests) - len(answers))
                if len(answers) == len(requests):
                    break
                if child:
                    self._left.append((child, requests[len(answers)]))
                    self._child = None
                answers.append(NoAnswerError(patience_s))
                patience_s = max(patience_s / 2, _LEAST_PATIENCE_S)
        return answers

    def answered_late(self) -> list[Any]:
        """Requests that got no answer, and whose children answered or ended since."""
        with self._lock:
            late = [(child, request) for child, request in self._left if child.has_moved()]
            self._left = [left for left in self._left if left not in late]
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
        if len(self._left) >= self._most_left:
            return None
        ours, theirs = MessageChannel.pair(NAME)
        try:
            with theirs:
                pid = self._starter.ask("start", [theirs.fileno()]).message
            return _Child(ours, pid)
        except (OSError, ChannelError):
            ours.close()
            return None


class _Child:
    """Our end of a child."""

    def __init__(self, channel: MessageChannel, pid: int) -> None:
        self._channel = channel
        self._pid = pid

    def send(self, requests: Sequence[Any], fds: Sequence[int]) -> bool:
        """Send requests; False if the child has ended."""
        try:
            self._channel.send(requests, fds)
        except ChannelError:
            return False
        return True

    def answers(self, patience_s: float) -> Iterator[Answer]:
        """Yield answers as long as they come."""
        while (answer := self._answer(patience_s)) is not None:
            yield answer

    def _answer(self, patience_s: float) -> Answer | None:
        patience_ns = int(patience_s * 1e9)
        now_ns, (used_ns, delay_ns, _) = time.monotonic_ns(), self._scheduled()
        blocked_ns = 0
        end = select.poll()
        end.register(self._channel, select.POLLIN)
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
            return self._channel.result()
        except ChannelError:
            return None
        except OSError as error:
            return error

    def has_moved(self) -> bool:
        """Whether it has answered, or ended."""
        return self._channel.has_frame()

    def close(self) -> None:
        """Leave it; it ends when it next answers or waits for requests."""
        self._channel.close()

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


def _start_children(task: Sequence[Any], fd: int) -> None:
    """What the starter does, until the other end is closed, or its process has ended."""
    channel = MessageChannel.to_parent(fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # which leaves no zombies

    def start(fds: Sequence[int]) -> Frame:
        (child_fd,) = fds
        try:
            pid = os.fork()
            if not pid:
                channel.close()
                _answer_all(MessageChannel.to_parent(child_fd), task)
        finally:
            os.close(child_fd)
        return Frame(pid)

    while channel.answer({"start": start}):
        pass


def _answer_all(channel: MessageChannel, task: Sequence[Any]) -> NoReturn:
    """What a child does, from the fork to its end."""
    try:
        make, *arguments = task
        worker: FileTask = named(make)(*arguments)
        while True:
            frame = channel.receive()
            worker.begin()
            for request in frame.message:
                try:
                    answer = worker.answer(request, frame.fds)
                except OSError as error:
                    channel.send_failure(error)
                except Exception as error:  # ask_all() raises it, and expects no more answers
                    channel.send_failure(error)
                    break
                else:
                    channel.send_result(answer)
                    for fd in answer.fds:
                        os.close(fd)
            for fd in frame.fds:
                os.close(fd)
    finally:
        os._exit(0)
