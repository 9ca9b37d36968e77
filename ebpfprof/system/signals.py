"""SIGINT, SIGTERM and SIGHUP: counted at any moment, acted on where that is safe.

An exception that a signal handler raises is not safe everywhere. Code that catches everything
swallows it (`except:`, `__del__`, functions that Python calls after a fork), or it comes between an
action and the note that it has to be undone. So the handler counts, and code that takes time calls
check(), which reads the count. KeyboardInterrupt is raised only in interruptible() work; if code
swallows it there, check() raises it again when the work ends.

Signal handlers belong to the process, and so does this state. They run in the main thread; in other
threads the functions here have no effect.
"""

from __future__ import annotations

import signal
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:  # the less is imported, the earlier signals are counted
    from collections.abc import Callable
    from sys import UnraisableHookArgs
    from types import FrameType, TracebackType
    from typing import Final, Self, TypeVar

    _T = TypeVar("_T")

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and a program that is executed would inherit that."""


class _State:
    came = 0
    """How many signals came."""
    allowed = 0
    """How many may come before the next one aborts."""
    interrupts = False
    """Whether the handler may raise KeyboardInterrupt now."""
    has_raised = False
    """Whether something was interrupted."""
    hangups = 0
    """How many SIGHUP came since reload_on_hangup()."""


_state = _State()


def install() -> None:
    """Count signals from now on, also those that are pending because they were blocked before.

    SIGHUP stays ignored where it is (nohup).
    """
    sys.unraisablehook = _unless_interrupted
    for number in NUMBERS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)


def ignore() -> None:
    """Ignore signals from now on, since the exit code is known."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def reload_on_hangup() -> None:
    """From now on SIGHUP ends nothing: hangups() counts them. For a service, also under nohup."""
    signal.signal(signal.SIGHUP, _on_hangup)


def hangups() -> int:
    """How many SIGHUP came since reload_on_hangup()."""
    return _state.hangups


def check() -> None:
    """Raise KeyboardInterrupt if a signal came that aborts. Does nothing in other threads."""
    if _state.came > _state.allowed and _is_main_thread():
        _state.has_raised = True
        raise KeyboardInterrupt


def interruptible(work: Callable[[], _T]) -> _T:
    """Do `work`; a signal that aborts raises KeyboardInterrupt at any place in it.

    What it leaves half done must end with this process. Raises KeyboardInterrupt also if such a
    signal came before, or if code in `work` swallowed the exception.
    """
    if not _is_main_thread():
        return work()
    check()
    before = _state.interrupts
    # Python runs handlers at calls and jumps back: not between the body and its `finally`.
    try:
        _state.interrupts = True
        return work()
    finally:
        _state.interrupts = before
        check()


class Deferred:
    """Raises KeyboardInterrupt not in its block but after it, except in interruptible() work there.

    A context manager.
    """

    _before = False

    def __enter__(self) -> Self:
        if _is_main_thread():
            self._before = _state.interrupts
            _state.interrupts = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._before:
            _state.interrupts = True
            check()


class Signals(Deferred):
    """Signals during a recording: the first ends the recording, the second aborts.

    The first one aborts, too, if it comes before there is anything to write. At the end of the
    block all signals that came are dealt with.
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


def _on_signal(number: int, frame: FrameType | None) -> None:
    _state.came += 1
    if _state.interrupts:
        check()


def _on_hangup(number: int, frame: FrameType | None) -> None:
    _state.hangups += 1


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _unless_interrupted(unraisable: UnraisableHookArgs) -> None:
    """Report a swallowed exception unless an interrupt caused it: objects are half made then."""
    if not _state.has_raised:
        sys.__unraisablehook__(unraisable)
