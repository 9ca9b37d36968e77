"""Processes that hold probes, and detach them by ending.

While SIGKILL is pending for a process, the kernel gives it no page of another one
(__get_user_pages, mm/gup.c): it can't remove a breakpoint, says "leaking uprobe", and the
breakpoint stays in the target. So no probe is ever closed: to detach probes, the process that holds
them is killed. A process that exits removes them, whatever else happens to it: SIGKILL is dequeued
before (get_signal, kernel/signal.c), and from then on none is delivered to it (SIGNAL_GROUP_EXIT,
PF_EXITING; complete_signal). It ends itself by SIGKILL, too: one that comes while exit_group()
begins would stay pending.

The kernel closes what a process holds one by one, the youngest file descriptor first
(task_work_run), and waits for a grace period at each probe: some 0.03 s for a link, 0.1 s for a
perf event. Several processes are ended side by side.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Collection
from typing import Final, NoReturn

from ebpfprof import errors
from ebpfprof.system.child_process import call, close_but

NAME: Final = "ebpfprof-holder"
SPARE_FDS: Final = 2
"""What starts holders has so many descriptors behind the standard files that it does not need."""
_STAYS_OPEN_FD: Final = 3  # closed after all probes, which are younger
_UNTIL_FD: Final = 4
_FIRST_FREE_FD: Final = 5
_MAX_ANSWER_BYTES: Final = 1 << 16

Answer = dict[str, str]
"""Empty if it went well; else "error", a name in ebpfprof.errors, and "message"."""


class Holder:
    """A process that holds probes."""

    def __init__(
        self, open_probes: Callable[[], None], *, fds: Collection[int], until: int, stays_open: int
    ) -> None:
        """Start a process that calls `open_probes` with the file descriptors `fds`; see answer().

        It ends when the pipe `until` has no writer any more, and closes `stays_open` when its
        probes are out. Raises AttachFailed.
        """
        self._answer, theirs = os.pipe()
        try:
            self._pid = os.fork()
            if not self._pid:
                _hold(open_probes, theirs, {*fds}, until, stays_open)
        except OSError as error:
            os.close(self._answer)
            raise errors.AttachFailed(
                f"No process can be started to hold the probes: {error.strerror}. Raise the limit "
                "of processes (ulimit -u, pids.max of the cgroup)."
            ) from error
        finally:
            os.close(theirs)

    def answer(self) -> Answer:
        """Wait until its probes are in, or refused; to be called once."""
        said = b""
        while more := os.read(self._answer, _MAX_ANSWER_BYTES):
            said += more
        os.close(self._answer)
        return json.loads(said) if said else as_answer(killed())

    def has_ended(self) -> bool:
        """Whether somebody has killed it."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, options) is not None

    def kill(self) -> None:
        """Begin to detach its probes."""
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait until its probes are out, after kill()."""
        os.waitpid(self._pid, 0)


def end(holders: Collection[Holder]) -> bool:
    """Detach the probes of several side by side; whether all were in until now."""
    were_in = not any(holder.has_ended() for holder in holders)
    for holder in holders:
        holder.kill()
    for holder in holders:
        holder.wait()
    return were_in


def answered(work: Callable[[], None]) -> Answer:
    """Do it; how it went."""
    try:
        work()
    except Exception as error:
        return as_answer(error)
    return {}


def as_answer(error: Exception) -> Answer:
    """What another process is told of an error."""
    if not isinstance(error, errors.EbpfprofError):  # a bug: nothing else would show it
        error = errors.AttachFailed(f"A process that puts probes in failed: {error!r}.")
    return {"error": type(error).__name__, "message": str(error)}


def killed() -> errors.AttachFailed:
    """Why probes were out early."""
    return errors.AttachFailed(
        f"A process that held the probes ({NAME}) was killed before they were to be detached. "
        "What came after that is missing: record again."
    )


def _hold(
    open_probes: Callable[[], None], answer: int, fds: set[int], until: int, stays_open: int
) -> NoReturn:
    """What a holder does, from the fork to its end."""
    try:
        call(NAME)
        os.dup2(stays_open, _STAYS_OPEN_FD)
        os.dup2(until, _UNTIL_FD)
        close_but([answer, *fds], _FIRST_FREE_FD)
        os.write(answer, json.dumps(answered(open_probes)).encode())
        os.close(answer)
        os.read(_UNTIL_FD, 1)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
        raise SystemExit  # not reached
