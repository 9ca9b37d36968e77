"""SIGINT, SIGTERM and SIGHUP: counted first, and acted on where nothing is torn.

An exception that comes out of nowhere is not safe: it gets lost where others catch everything (in
`__del__`, after a fork, in `except:`), and it may come between what was taken and the note that it
is to be given back. So a signal is counted, and whatever takes its time looks at the count, by
check(). Only abortable() work is torn by KeyboardInterrupt, and should that get lost there, the
count is looked at when the work is done.

This is state of the process, as its handlers are. Only the main thread is told of signals: in
others nothing here does anything.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:  # until this is imported, a signal ends in a traceback: no more than is needed
    from collections.abc import Callable
    from sys import UnraisableHookArgs
    from types import FrameType, TracebackType
    from typing import Any, Final, NoReturn, Self, TypeVar

    _T = TypeVar("_T")

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Python ignores these, and a program that is executed would inherit that.
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


class _State:
    came = 0
    """How many signals came."""
    allowed = 0
    """How many may come before the next one aborts."""
    tears = False
    """Whether the main thread does what may be torn."""


_state = _State()


def install() -> None:
    """Count signals from now on; also those that came while they were blocked, by who started us.

    SIGHUP stays ignored where it is (nohup).
    """
    sys.unraisablehook = _unless_interrupted
    for number in NUMBERS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)


def ignore() -> None:
    """The exit code is known: no signal changes it any more."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def check() -> None:
    """Raise KeyboardInterrupt if a signal came that aborts. Does nothing in other threads."""
    if _state.came > _state.allowed and _is_main_thread():
        raise KeyboardInterrupt


def abortable(work: Callable[[], _T]) -> _T:
    """Do `work`, which a signal that aborts tears wherever it is.

    It must leave nothing half done that outlives this process. Raises KeyboardInterrupt when a
    signal aborts, or has done so before.
    """
    if not _is_main_thread():
        return work()
    check()
    before = _state.tears
    # No signal is seen between what `try` guards and what follows: only calls and loops look.
    try:
        _state.tears = True
        return work()
    finally:
        _state.tears = before
        check()


class Deferred:
    """What runs in the block is not torn, but for what is abortable() in it. A context manager."""

    _before = False

    def __enter__(self) -> Self:
        if _is_main_thread():
            self._before = _state.tears
            _state.tears = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._before:
            _state.tears = True
            check()


class Signals(Deferred):
    """While something is recorded: the first signal ends that, any other aborts.

    One that came before there is something to write aborts, too. When the block is left all is
    over, and those that came are answered.
    """

    @property
    def came(self) -> bool:
        """Whether the recording is to end."""
        return _state.came > 0

    def end_recording_only(self) -> None:
        """From now on there is something to write: the next signal only sets `came`.

        Raises KeyboardInterrupt if one came before.
        """
        check()
        _state.allowed = 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _state.allowed = _state.came
        super().__exit__(kind, error, traceback)


def fork(child: Callable[[], NoReturn], *, ignores: bool = False) -> int:
    """Fork, undisturbed by signals; returns the pid of what calls `child`, which must not return.

    Signals do there what the caller of ours wanted. If it `ignores` them, it is ended by none that
    a terminal or a supervisor sends to all of us.
    """
    with Deferred():  # what runs after a fork may swallow an exception
        ours = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if pid == 0:
                _become(child, ours, ignores=ignores)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ours)


def _become(child: Callable[[], NoReturn], mask: set[Any], *, ignores: bool) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (*NUMBERS, signal.SIGQUIT) if ignores else ():
            signal.signal(number, signal.SIG_IGN)
        for number in () if ignores else (*NUMBERS, *_IGNORED_BY_PYTHON):
            if number in _IGNORED_BY_PYTHON or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        child()
    finally:
        os._exit(1)


def _on_signal(number: int, frame: FrameType | None) -> None:
    _state.came += 1
    if _state.tears:
        check()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _unless_interrupted(unraisable: UnraisableHookArgs) -> None:
    """Say nothing of a KeyboardInterrupt that gets lost: it was counted."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
