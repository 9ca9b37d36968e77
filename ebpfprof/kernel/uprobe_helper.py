"""A process of its own that starts the holders of probes, and outlives ebpfprof.

It is in a session of its own, so that no signal to ebpfprof ends it. However ebpfprof ends, the
helper notices, has the probes detached, and checks the target's code afterwards. If the helper is
killed, too, the holders end by themselves (ebpfprof.kernel.probe_holders).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ebpfprof import errors
from ebpfprof.kernel import held_probes, probe_holders, syscalls, uprobes
from ebpfprof.kernel.held_probes import HeldProbes, ProbeContext
from ebpfprof.kernel.probe_text import KernelLog
from ebpfprof.kernel.uprobes import NO_PROGRAM, ProbePoint
from ebpfprof.system import lean_start
from ebpfprof.system.channel import ChannelError, ChildFailedError, Handler, MessageChannel
from ebpfprof.system.fair_lock import FairLock
from ebpfprof.system.lean_start import Child
from ebpfprof.system.open_files import too_many
from ebpfprof.system.priority import run_promptly

NAME: Final = "ebpfprof-uprobe"


@dataclass(frozen=True, slots=True)
class Uprobe:
    """Run the BPF function `function` at `offset` (bytes into the file) with an attach cookie.

    `address` is where the process has that in its memory.
    """

    function: str
    offset: int
    address: int
    cookie: int


@dataclass(eq=False, slots=True)
class _Leaving:
    """Groups that a thread wants detached."""

    groups: Sequence[int]
    are_out: bool = False


class UprobeHelper:
    """Our end of the helper. Closing it detaches all probes and ends the helper."""

    def __init__(self, *, uses_links: bool) -> None:
        """Start it. With `uses_links` probes are links of their own (kernel.uprobe_links)."""
        self.failure: errors.AttachFailed | None = None
        """Why probes were removed early, or could not be removed, once that is known."""
        self._lock = FairLock()  # each target in windows asks for it several times a second
        self._leaving: dict[bool, deque[_Leaving]] = {True: deque(), False: deque()}
        """Who waits for its probes to be detached, by whether that is for a while."""
        self._channel, theirs = MessageChannel.pair("A process that attaches probes")
        kept = [theirs.fileno()]
        if uses_links:
            kept.append(syscalls.load_noop("kprobe", uprobes.attach_type(uses_links=True)))
        self._process: Child | None = lean_start.start(NAME, _help, kept)
        theirs.close()
        for noop_program in kept[1:]:
            os.close(noop_program)

    def attach(
        self,
        group: int,
        file_fd: int,
        pid: int,
        probes: Sequence[Uprobe],
        programs: Mapping[str, int],
        *,
        anchor: tuple[int, int],
        uses_links: bool,
    ) -> None:
        """Put probes into process `pid` at offsets of the open file `file_fd`.

        They stay until the `group` is detached; it has no others but perhaps an anchor, which is an
        offset and runtime address that is never passed. `programs` has the file descriptors of the
        BPF functions, loaded for links if it `uses_links`. Raises KernelUnsupported,
        PermissionDenied or AttachFailed, and leaves no probe then.
        """
        if not probes:
            return
        functions = sorted({probe.function for probe in probes})
        rows = [
            (probe.offset, probe.address, functions.index(probe.function), probe.cookie)
            for probe in probes
        ]
        fds = [file_fd, *(programs[function] for function in functions)]
        with self._lock:
            self._ask(
                "attach",
                fds,
                group=group,
                pid=pid,
                anchor=anchor,
                uses_links=uses_links,
                probes=rows,
            )

    def detach(self, groups: Sequence[int] | None = None, *, for_a_while: bool = False) -> None:
        """Detach the probes of these groups, or of all; groups without probes are passed over.

        If that is `for_a_while`, the anchor stays in. What went wrong is in `failure` then.

        The kernel takes a tenth of a second, for many groups as for one. So the thread that
        has its turn detaches the groups of all threads that wait for theirs.
        """
        try:
            if groups is None:
                with self._lock:
                    self._ask("detach", groups=None, anchors_stay=for_a_while)
            else:
                self._detach_together(_Leaving(groups), for_a_while=for_a_while)
        except errors.AttachFailed as error:
            self.failure = error

    def _detach_together(self, mine: _Leaving, *, for_a_while: bool) -> None:
        waiting = self._leaving[for_a_while]
        waiting.append(mine)
        with self._lock:
            if mine.are_out:  # another thread has done it
                return
            together = [waiting.popleft() for _ in range(len(waiting))]
            try:
                groups = [group for leaving in together for group in leaving.groups]
                self._ask("detach", groups=groups, anchors_stay=for_a_while)
            finally:
                for leaving in together:
                    leaving.are_out = True

    def close(self) -> None:
        """Detach all probes and wait until the helper has ended."""
        with self._lock:
            self._channel.close()
            process, self._process = self._process, None
        if process:
            process.wait()

    def _ask(self, request: str, fds: Sequence[int] = (), **arguments: object) -> None:
        """Ask the helper; the caller holds the lock."""
        try:
            self._channel.ask(request, fds, **arguments)
        except ChannelError as error:
            raise _gone() from error
        except (OSError, ChildFailedError) as error:
            raise too_many(error) or errors.AttachFailed(str(error)) from error


def _gone() -> errors.AttachFailed:
    return errors.AttachFailed(
        f"The parent of the processes that hold probes ({NAME}) was killed, which detached them. "
        "Later events are missing: record again."
    )


def _help(channel_fd: int, noop_program: int = NO_PROGRAM) -> None:
    """What the helper does. If it ends while probes are in, their holders notice."""
    run_promptly(with_children=True)  # and its holders: until they have ended, the target traps
    until, _until_writer = os.pipe()
    kernel_log = KernelLog(probe_holders.NAME)
    context = ProbeContext(noop_program != NO_PROGRAM, noop_program, until, kernel_log)
    _answer_all(MessageChannel.to_parent(channel_fd), context)


def _answer_all(channel: MessageChannel, context: ProbeContext) -> None:
    """Do what is asked until the other end is closed, or its process has ended."""
    targets = _Targets(context)
    handlers: dict[str, Handler] = {"attach": targets.attach, "detach": targets.detach}
    while channel.answer(handlers):
        pass
    with suppress(errors.AttachFailed):  # no process is left that it could be reported to
        targets.detach((), None, anchors_stay=False)


class _Targets:
    """The probes of all groups, in the helper."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._held: dict[int, HeldProbes] = {}

    def attach(
        self,
        fds: Sequence[int],
        group: int,
        pid: int,
        anchor: tuple[int, int],
        uses_links: bool,
        probes: Sequence[tuple[int, int, int, int]],
    ) -> None:
        """Put probes in: `fds` are the executable and the programs. See UprobeHelper.attach()."""
        file_fd, *programs = fds
        context = self._context
        if not uses_links:
            context = replace(context, uses_links=False, noop_program=NO_PROGRAM)
        try:
            target = self._held.pop(group, None)
            if target:
                os.close(file_fd)
                target.context = context
            else:
                target = HeldProbes(pid, file_fd, context, anchor)
            points = [
                ProbePoint(offset, address, programs[index], cookie)
                for offset, address, index, cookie in probes
            ]
            try:
                target.attach(points, targets=len(self._held) + 1)
            except BaseException:  # no probe may stay
                held_probes.detach([target], anchors_stay=False)
                raise
            self._held[group] = target
        finally:
            for program in programs:
                os.close(program)

    def detach(self, _fds: Sequence[int], groups: Sequence[int] | None, anchors_stay: bool) -> None:
        """Detach the probes of these groups, or of all."""
        if groups is None:
            groups = list(self._held)
        leaving = {group: self._held.pop(group) for group in groups if group in self._held}
        if anchors_stay:
            self._held.update(leaving)
        held_probes.detach(leaving.values(), anchors_stay=anchors_stay)
