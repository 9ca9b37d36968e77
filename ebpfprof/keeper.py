"""The process that puts uprobes in and takes them out: a child of ours that no signal to us ends.

While SIGKILL is pending for a process, the kernel gives it no page of another one
(__get_user_pages, mm/gup.c): it can neither put a breakpoint in nor take one out, says "leaking
uprobe", and the breakpoint stays in the target. A profiler that is killed while it attaches or
detaches would leave some behind. Its keeper is in a session of its own, knows when we end, however
that comes about, and then takes out what is in. If it is killed itself while nothing happens, the
kernel takes the probes out: for a process that exits no signal is pending any more.

The first probe of a process and the last to go is an anchor, where it never passes. With no probe
left, the next thread that meets a breakpoint which is just gone lets the kernel forget that the
process had any (MMF_HAS_UPROBES, mmf_recalc_uprobes in kernel/events/uprobes.c); a thread that has
trapped, but was not seen to yet (its processor was taken away by a hypervisor), then gets SIGTRAP.
While the anchor is in, none forgets, and it goes a grace period after the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from ebpfprof import errors, perf, uprobemulti

NAME: Final = "ebpfprof-keeper"
_PR_SET_NAME = 15  # include/uapi/linux/prctl.h
_MAX_MESSAGE_BYTES: Final = 1 << 17
_MAX_FDS: Final = 64
_FIRST_FD: Final = 3


@dataclass(frozen=True, slots=True)
class Uprobe:
    """Run the BPF function `function` at `offset` (bytes into the file) with an attach cookie."""

    function: str
    offset: int
    cookie: int


class Keeper:
    """Our end of a keeper. Closing it takes all probes out and ends it."""

    def __init__(self, *, multi: bool) -> None:
        """Start it. With `multi` probes are links of their own (ebpfprof.uprobemulti)."""
        self.failure: errors.AttachFailed | None = None
        """Why probes were out before they were to be, once that is known."""
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Not a program of its own: that would have none of our capabilities, unless we are root.
        self._pid = os.fork()
        if not self._pid:
            _keep(theirs, multi=multi)
        theirs.close()

    def attach(
        self,
        group: int,
        exe_fd: int,
        pid: int,
        probes: Sequence[Uprobe],
        programs: Mapping[str, int],
        *,
        anchor_offset: int,
    ) -> None:
        """Put probes into process `pid`, where it passes offsets of the open file `exe_fd`.

        They stay until the `group` is detached; it has no others but perhaps an anchor. `programs`
        has the file descriptors of the BPF functions. Raises KernelUnsupported, PermissionDenied or
        AttachFailed; none is in then.
        """
        if not probes:
            return
        functions = sorted({probe.function for probe in probes})
        request = {
            "attach": group,
            "pid": pid,
            "anchor": anchor_offset,
            "probes": [(functions.index(p.function), p.offset, p.cookie) for p in probes],
        }
        self._ask(request, [exe_fd, *(programs[function] for function in functions)])

    def detach(self, groups: Sequence[int] | None = None, *, for_a_while: bool = False) -> None:
        """Take out the probes of these groups, or of all; those that have none are passed over.

        If that is `for_a_while`, the anchor stays in. If the keeper has gone, they are out: then
        `failure` says so.
        """
        try:
            self._ask({"detach": groups, "anchors_stay": for_a_while})
        except errors.AttachFailed as error:
            self.failure = error

    def close(self) -> None:
        """Take out all probes and wait until the keeper has ended."""
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
        f"The process that keeps the probes ({NAME}) has ended before they were to be taken out: "
        "somebody killed it. What came after that is missing: record anew."
    )


def _keep(asked: socket.socket, *, multi: bool) -> NoReturn:
    """What the keeper does, from the fork to its end."""
    try:
        _leave_the_others(asked)
        held: dict[int, list[int]] = {}
        while True:
            message, fds, _, _ = socket.recv_fds(asked, _MAX_MESSAGE_BYTES, _MAX_FDS)
            if not message:
                break  # the other end is closed, or its process is gone
            asked.send(json.dumps(_answer(json.loads(message), fds, held, multi)).encode())
    finally:  # what is still in goes now, the youngest file descriptor first (task_work_run)
        os._exit(0)


def _leave_the_others(asked: socket.socket) -> None:
    """Hold nothing of what was ours: no terminal, no pipe, no connection, no folder."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME.encode(), 0, 0, 0)
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(_FIRST_FD):
        os.dup2(nothing, fd)
    kept = asked.fileno()
    os.closerange(_FIRST_FD, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _answer(
    request: Mapping[str, Any], fds: Sequence[int], held: dict[int, list[int]], multi: bool
) -> dict[str, str]:
    """Do what was asked; nothing is answered if it was done."""
    try:
        if "detach" in request:
            groups = list(held) if request["detach"] is None else request["detach"]
            leaving = {group: held.pop(group) for group in groups if group in held}
            if request["anchors_stay"]:
                held.update({group: leaving[group][:1] for group in leaving})
            _close_all(leaving.values(), but_anchors=request["anchors_stay"])
        else:
            holding = held.pop(request["attach"], [])
            try:
                _put_in(holding, request, fds, multi)
            except BaseException:  # all or none
                _close_all([holding], but_anchors=False)
                raise
            held[request["attach"]] = holding
    except errors.EbpfprofError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except Exception as error:  # a bug: here nobody would see it
        what = f"The process that keeps the probes ({NAME}) failed: {error!r}."
        return {"error": errors.AttachFailed.__name__, "message": what}
    finally:
        for fd in fds:
            os.close(fd)
    return {}


def _put_in(
    holding: list[int], request: Mapping[str, Any], fds: Sequence[int], multi: bool
) -> None:
    """Append what holds the probes to `holding`, the anchor's first unless it is there."""
    exe_fd, *programs = fds
    path, pid, probes = f"/proc/self/fd/{exe_fd}", request["pid"], request["probes"]
    if not multi:
        if not holding:
            holding.append(perf.open_uprobe(path, request["anchor"], pid))
        for function, offset, cookie in probes:
            holding.append(perf.open_uprobe(path, offset, pid))
            holding.append(perf.link_program(programs[function], holding[-1], cookie))
        return
    if not holding:
        holding.append(uprobemulti.link(programs[0], path, [(request["anchor"], 0)], pid))
    for index, program in enumerate(programs):
        places = [(offset, cookie) for function, offset, cookie in probes if function == index]
        holding.append(uprobemulti.link(program, path, places, pid))


def _close_all(held: Collection[Sequence[int]], *, but_anchors: bool) -> None:
    """Take out the probes of several processes; of each, the anchor last, if at all.

    Each takes the kernel a grace period, some 0.03 s for a link and 0.1 s for a perf event.
    """
    rest = [fd for fds in held for fd in reversed(fds[1:])]
    with ThreadPoolExecutor(max_workers=max(1, len(rest))) as pool:
        for closing in (rest, [fds[0] for fds in held if fds and not but_anchors]):
            list(pool.map(_close, closing))


def _close(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)
