"""A process of its own that starts those that hold probes, and outlives us.

It is forked before there is much in memory, and in a session of its own, so that no signal to us
ends it. However we end, it notices, has the probes detached, and looks at the target's code
afterwards. If it is killed, too, those that hold the probes end by themselves
(ebpfprof.kernel.probe_holders).
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

from ebpfprof import errors
from ebpfprof.kernel import held_probes, perf_events, uprobe_links
from ebpfprof.kernel.held_probes import NO_PROGRAM, HeldProbes, ProbeContext, ProbePoint
from ebpfprof.kernel.probe_holders import NAME as HOLDER
from ebpfprof.kernel.probe_holders import SPARE_FDS, answered
from ebpfprof.kernel.probe_text import KernelLog
from ebpfprof.system import signals
from ebpfprof.system.child_process import leave_the_others

NAME: Final = "ebpfprof-uprobe"
_MAX_MESSAGE_BYTES: Final = 1 << 17
_MAX_FDS: Final = 64


@dataclass(frozen=True, slots=True)
class Uprobe:
    """Run the BPF function `function` at `offset` (bytes into the file) with an attach cookie.

    `address` is where the process has that in its memory.
    """

    function: str
    offset: int
    address: int
    cookie: int


class UprobeHelper:
    """Our end of the helper. Closing it detaches all probes and ends it."""

    def __init__(self, *, uses_links: bool) -> None:
        """Start it. With `uses_links` probes are links of their own (kernel.uprobe_links)."""
        self.failure: errors.AttachFailed | None = None
        """Why probes were out early, or could not be removed, once that is known."""
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nothing = (
            perf_events.load_nothing("kprobe", uprobe_links.ATTACH_TYPE)
            if uses_links
            else NO_PROGRAM
        )
        # Not a program of its own: that would have none of our capabilities, unless we are root.
        self._pid = signals.fork(
            lambda: _keep(theirs, nothing, uses_links=uses_links), ignores=True
        )
        theirs.close()
        if uses_links:
            os.close(nothing)

    def attach(
        self,
        group: int,
        exe_fd: int,
        pid: int,
        probes: Sequence[Uprobe],
        programs: Mapping[str, int],
        *,
        anchor: tuple[int, int],
    ) -> None:
        """Put probes into process `pid`, where it passes offsets of the open file `exe_fd`.

        They stay until the `group` is detached; it has no others but perhaps an anchor, which is an
        offset and runtime address that is never passed. `programs` has the file descriptors of the
        BPF functions. Raises KernelUnsupported, PermissionDenied or AttachFailed; none is in then.
        """
        if not probes:
            return
        functions = sorted({probe.function for probe in probes})
        request = {
            "attach": group,
            "pid": pid,
            "anchor": anchor,
            "probes": [
                (probe.offset, probe.address, functions.index(probe.function), probe.cookie)
                for probe in probes
            ],
        }
        self._ask(request, [exe_fd, *(programs[function] for function in functions)])

    def detach(self, groups: Sequence[int] | None = None, *, for_a_while: bool = False) -> None:
        """Detach the probes of these groups, or of all; those that have none are passed over.

        If that is `for_a_while`, the anchor stays in. What went wrong is in `failure` then.
        """
        try:
            self._ask({"detach": groups, "anchors_stay": for_a_while})
        except errors.AttachFailed as error:
            self.failure = error

    def close(self) -> None:
        """Detach all probes and wait until the helper has ended."""
        with self._lock:
            self._socket.close()
            pid, self._pid = self._pid, 0
        if pid:
            os.waitpid(pid, 0)

    def _ask(self, request: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        with self._lock:
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
                answer = self._socket.recv(_MAX_MESSAGE_BYTES)
            except OSError as error:
                raise _gone() from error
        if not answer:
            raise _gone()
        said = json.loads(answer)
        if said:
            raise getattr(errors, said["error"])(said["message"])


def _gone() -> errors.AttachFailed:
    return errors.AttachFailed(
        f"The process that starts those with the probes ({NAME}) was killed, which detached them. "
        "What came after that is missing: record again."
    )


def _keep(asked: socket.socket, nothing: int, *, uses_links: bool) -> NoReturn:
    """What the helper does, from the fork to its end."""
    try:
        os.setsid()
        own = [asked.fileno(), nothing] if uses_links else [asked.fileno()]
        asked_fd, *rest = leave_the_others(NAME, own, spare=SPARE_FDS)
        until, _until_writer = os.pipe()
        context = ProbeContext(
            uses_links, rest[0] if rest else NO_PROGRAM, until, KernelLog(HOLDER)
        )
        _answer_all(socket.socket(fileno=asked_fd), context)
    finally:  # if probes are still in, their holders notice
        os._exit(0)


def _answer_all(asked: socket.socket, context: ProbeContext) -> None:
    """Do what is asked until the other end is closed, or its process gone."""
    held: dict[int, HeldProbes] = {}
    while True:
        message, fds, _, _ = socket.recv_fds(asked, _MAX_MESSAGE_BYTES, _MAX_FDS)
        if not message:
            break
        request = json.loads(message)
        does = partial(_detach, request, held)
        if "attach" in request:
            does = partial(_attach, request, fds, held, context)
        answer = json.dumps(answered(does)).encode()
        with suppress(BrokenPipeError):  # gone meanwhile, which is seen next
            asked.send(answer)
    with suppress(errors.AttachFailed):  # nothing is left that could be told
        _detach({"detach": None, "anchors_stay": False}, held)


def _attach(
    request: Mapping[str, Any],
    fds: Sequence[int],
    held: dict[int, HeldProbes],
    context: ProbeContext,
) -> None:
    group, (exe_fd, *programs) = request["attach"], fds
    try:
        target = held.pop(group, None)
        if target:
            os.close(exe_fd)
        else:
            target = HeldProbes(request["pid"], exe_fd, context, request["anchor"])
        points = [
            ProbePoint(offset, address, programs[index], cookie)
            for offset, address, index, cookie in request["probes"]
        ]
        try:
            target.attach(points, targets=len(held) + 1)
        except BaseException:
            held_probes.detach([target], anchors_stay=False)
            raise
        held[group] = target
    finally:
        for program in programs:
            os.close(program)


def _detach(request: Mapping[str, Any], held: dict[int, HeldProbes]) -> None:
    groups = list(held) if request["detach"] is None else request["detach"]
    leaving = {group: held.pop(group) for group in groups if group in held}
    if request["anchors_stay"]:
        held.update(leaving)
    held_probes.detach(leaving.values(), anchors_stay=request["anchors_stay"])
