"""Processes that hold probes: to detach the probes, they are killed.

While SIGKILL is pending for a process, the kernel gives it no page of another process
(__get_user_pages, mm/gup.c): it can't remove a breakpoint, says "leaking uprobe", and the
breakpoint stays in the target. So no probe is ever closed: to detach probes, the process that holds
them is killed. A process that exits removes them, whatever else happens to it: SIGKILL is dequeued
before (get_signal, kernel/signal.c), and from then on none is delivered to it (SIGNAL_GROUP_EXIT,
PF_EXITING; complete_signal). It ends itself by SIGKILL, too: one that comes while exit_group()
begins would stay pending.

The kernel closes the files of a process one by one, the youngest file descriptor first
(task_work_run), and waits for a grace period at each probe: about 0.03 s for a link, 0.1 s for a
perf event. Several processes are ended side by side.

A process of Python has 2 MB of memory of its own. So a holder that is to live for long, or does,
becomes a shell, which has a tenth of that; one of a window does not, since some machines log each
program that is executed.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NoReturn

from ebpfprof.errors import AttachFailed, EbpfprofError
from ebpfprof.system import child_process
from ebpfprof.system.channel import ChannelError, ChildFailedError, Frame, MessageChannel
from ebpfprof.system.open_files import too_many

NAME: Final = "ebpfprof-holder"
LONG_MS: Final = 15_000
# The kernel's log has the name. `read` ends when the pipe has no writer left.
_SHELL: Final = ("/bin/sh", "-c", f"echo {NAME} >/proc/$$/comm; read -r _; kill -KILL $$")

OpenProbes = Callable[[Mapping[int, int]], None]
"""Opens probes in a holder, given its file descriptors by their numbers in this process."""


class Holder:
    """A process that holds probes."""

    def __init__(
        self,
        open_probes: OpenProbes,
        *,
        fds: Collection[int],
        until: int,
        stays_open: int,
        is_to_last: bool,
    ) -> None:
        """Start a process that calls `open_probes` with the file descriptors `fds`; see await_in().

        It ends when the pipe `until` has no writer left, and closes `stays_open` once its probes
        are removed. If it `is_to_last`, it soon takes little memory. Raises AttachFailed.
        """
        self._channel, theirs = MessageChannel.pair("A process that attaches probes")
        hold = partial(_hold, open_probes, 0 if is_to_last else LONG_MS, [*fds])
        # The first is closed last, after all probes.
        kept = [stays_open, until, theirs.fileno(), *fds]
        try:
            self._pid = child_process.start(NAME, hold, kept)
        except OSError as error:
            self._channel.close()
            raise AttachFailed(
                f"No process can be started to hold the probes: {error.strerror}. Raise the limit "
                "of processes (ulimit -u, pids.max of the cgroup)."
            ) from error
        finally:
            theirs.close()

    def await_in(self) -> Exception | None:
        """Wait until its probes are in; returns why they are not. To be called once."""
        with self._channel as channel:
            try:
                channel.result()
            except EbpfprofError as error:
                return error
            except ChannelError:
                return killed()
            except (OSError, ChildFailedError) as error:
                return too_many(error) or AttachFailed(str(error))
        return None

    def has_ended(self) -> bool:
        """Whether another process has killed it."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, options) is not None

    def kill(self) -> None:
        """Begin to detach its probes."""
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait until its probes are removed, after kill()."""
        os.waitpid(self._pid, 0)
        self._channel.close()


def end(holders: Collection[Holder]) -> bool:
    """Detach the probes of several holders side by side; whether all were in until now."""
    were_in = not any(holder.has_ended() for holder in holders)
    for holder in holders:
        holder.kill()
    for holder in holders:
        holder.wait()
    return were_in


def killed() -> AttachFailed:
    """Why probes were removed early."""
    return AttachFailed(
        f"A process that holds the probes ({NAME}) was killed, which detached them. Later events "
        "are missing: record again."
    )


def _hold(
    open_probes: OpenProbes,
    long_ms: int,
    fds: Sequence[int],
    stays_open: int,
    until: int,
    channel_fd: int,
    *own_fds: int,
) -> NoReturn:
    """What a holder does. `own_fds` are its numbers of the starter's `fds`."""
    numbers = dict(zip(fds, own_fds, strict=True))
    try:
        with MessageChannel.to_parent(channel_fd) as channel:
            try:
                open_probes(numbers)
            except Exception as error:  # any error: await_in() returns it
                channel.send_failure(error)
            else:
                channel.send_result(Frame())
        _wait(until, long_ms)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
        raise SystemExit  # not reached


def _wait(until: int, long_ms: int) -> None:
    """Wait until the pipe has no writer left; after `long_ms` as a shell, if there is one."""
    end = select.poll()
    end.register(until, select.POLLIN)
    if end.poll(long_ms):
        return
    os.dup2(until, 0)
    child_process.become(*_SHELL)
    os.read(until, 1)
