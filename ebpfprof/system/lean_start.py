"""Starts children from a process that was forked when there was little in memory yet.

A child keeps all the memory that its parent had when it was forked: what the parent writes later,
both have. A service that has imported everything gives each long-lived child tens of megabytes in
that way. So the starter is forked first, and from it the children. A child imports what it needs.

    ebpfprof ──► the starter, which has imported next to nothing ──► file worker, helper, ...
"""

from __future__ import annotations

import importlib
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final

from ebpfprof.system import child_process
from ebpfprof.system.channel import ChannelError, Frame, Handler, MessageChannel

NAME: Final = "ebpfprof-start"


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
        self._channel, theirs = MessageChannel.pair(NAME)
        with theirs:
            self._pid = child_process.start(NAME, _start_all, [theirs.fileno()], new_session=True)

    def ask(self, request: str, fds: Sequence[int] = (), **arguments: object) -> Frame:
        """See MessageChannel.ask()."""
        with self._lock:
            return self._channel.ask(request, fds, **arguments)

    def close(self) -> None:
        self._channel.close()
        os.waitpid(self._pid, 0)


class _State:
    starter: _Starter | None = None


@contextmanager
def prepared() -> Iterator[None]:
    """In the block, start() has children started by a starter, which is forked now.

    To be called before much is imported, and before there are threads. Children that still run when
    the block ends are not affected. Raises OSError.
    """
    starter = _State.starter = _Starter()
    try:
        yield
    finally:
        _State.starter = None
        starter.close()


def start(name: str, work: Callable[..., object], fds: Sequence[int], *arguments: object) -> Child:
    """Start a child in a session of its own; it calls `work(*arguments, *fds)`.

    See child_process.start(). If there is a starter, it imports the module of `work`, which must be
    a function of a module, and gets the arguments as JSON. Raises OSError.
    """
    starter = _State.starter
    if starter:
        with suppress(ChannelError):  # it was killed: start the child here
            frame = starter.ask("start", fds, name=name, work=name_of(work), arguments=arguments)
            return Child(frame.message, *frame.fds)
    pid = child_process.start(name, partial(work, *arguments), fds, new_session=True)
    return Child(pid, os.pidfd_open(pid))


def do_everywhere(work: Callable[..., object], *arguments: object) -> None:
    """Call `work(*arguments)` here and in the starter, if there is one: later children have it.

    `work` and `arguments` as in start(). Raises what `work` does here.
    """
    starter = _State.starter
    if starter:
        with suppress(ChannelError):  # it was killed, and starts no more children
            starter.ask("do", work=name_of(work), arguments=arguments)
    work(*arguments)


def name_of(work: Callable[..., object]) -> str:
    """The name by which another process finds a function or class of a module; see named()."""
    return f"{work.__module__}:{work.__qualname__}"


def named(name: str) -> Callable[..., Any]:
    """The function or class of this name, whose module is imported."""
    module, _, path = name.partition(":")
    loaded: Callable[..., Any] = attrgetter(path)(importlib.import_module(module))
    return loaded


def _start_all(fd: int) -> None:
    """What the starter does, until the other end is closed, or its process has ended."""
    channel = MessageChannel.to_parent(fd)
    running: dict[int, int] = {}
    handlers: dict[str, Handler] = {"start": partial(_start, running), "do": _do}
    while True:
        waiting = select.poll()
        for waiting_fd in (fd, *running):
            waiting.register(waiting_fd, select.POLLIN)
        for ready_fd, _ in waiting.poll():
            if ready_fd != fd:
                os.close(ready_fd)
                os.waitpid(running.pop(ready_fd), 0)
            elif not channel.answer(handlers):
                return


def _start(
    running: dict[int, int], fds: Sequence[int], name: str, work: str, arguments: list[Any]
) -> Frame:
    """Start a child; returns its pid and a descriptor of it, which `running` keeps, too."""
    try:
        pid = child_process.start(name, partial(_work, work, arguments), fds, new_session=True)
        pid_fd = os.pidfd_open(pid)
    finally:
        for fd in fds:
            os.close(fd)
    running[pid_fd] = pid
    return Frame(pid, [pid_fd])


def _do(fds: Sequence[int], work: str, arguments: list[Any]) -> None:
    named(work)(*arguments)


def _work(work: str, arguments: Sequence[Any], *fds: int) -> None:
    """What a child does: the module of its work is imported in it."""
    named(work)(*arguments, *fds)
