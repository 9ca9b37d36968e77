"""The probes of one target: put in by holders, detached, and the target's code checked after that.

The first probe of a target and the last to be removed is an anchor, at a place that is never
passed. Without any probe left, the next thread that meets a breakpoint which was just removed lets
the kernel forget that the process had any (MMF_HAS_UPROBES, mmf_recalc_uprobes in
kernel/events/uprobes.c); a thread that has trapped, but whose trap was not handled yet (a
hypervisor took its processor away), then gets SIGTRAP. While the anchor is in, the kernel does not
forget. Holders that are to last have an anchor themselves, which is removed last when they are
killed; while they are being killed, and between windows, a holder of its own has it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ebpfprof import errors
from ebpfprof.kernel import probe_holders, uprobes
from ebpfprof.kernel.probe_holders import Holder
from ebpfprof.kernel.probe_text import KernelLog, ProbeText, warn_in_kernel_log
from ebpfprof.kernel.uprobes import NO_PROGRAM, ProbePoint

# For the probes of one target: with more holders detaching takes less time, but each takes more
# than 1 MB.
_MOST_HOLDERS: Final = 4
_HOLDERS_OF_ALL: Final = 16


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What the probes of all targets have in common.

    With `uses_links` probes are links of their own (kernel.uprobe_links), else perf events.
    `noop_program` is a BPF program that does nothing, NO_PROGRAM for perf events. Holders end when
    the pipe `until` has no writer left.
    """

    uses_links: bool
    noop_program: int
    until: int
    kernel_log: KernelLog


class HeldProbes:
    """The probes of one target. They are removed, too, when the process with this object ends."""

    def __init__(
        self, pid: int, file_fd: int, context: ProbeContext, anchor: tuple[int, int]
    ) -> None:
        """None yet. `anchor` is an offset and runtime address that process `pid` never passes.

        `file_fd` is the open file with these places; it is closed with the last probe.
        """
        self.pid = pid
        self._file_fd = file_fd
        self.context = context
        """How probes are put in from now on."""
        self._text = ProbeText(pid)
        self._points: dict[int, ProbePoint] = {}  # all there ever were, by address
        self._holders: list[Holder] = []
        # All other holders have the writing end: the anchor's holder ends after them.
        self._alone, self._others = os.pipe()
        self._anchor_place = anchor
        self._anchor: Holder | None = None
        self._anchor_starts = False

    @property
    def _anchor_point(self) -> ProbePoint:
        return ProbePoint(*self._anchor_place, self.context.noop_program)

    def attach(self, points: Sequence[ProbePoint], *, targets: int) -> None:
        """Put probes in, all or none; `targets` have some. The first ones may be there to last.

        Those after a detach for a while are of a window. Raises KernelUnsupported, PermissionDenied
        or AttachFailed, and leaves no probe then but an anchor that was there.
        """
        self._text.note([point.address for point in points])
        self._points.update({point.address: point for point in points})
        count = max(1, min(_MOST_HOLDERS, _HOLDERS_OF_ALL // targets))
        shares = [share for share in self._shared_out(points, count) if share]
        if not self._anchor:  # the oldest file descriptor is closed last
            shares = [[self._anchor_point, *share] for share in shares]
        holders = self._start(shares, until=self.context.until, are_to_last=not self._anchor)
        self._holders += _all_in(holders)

    def start_anchor(self, *, is_to_last: bool) -> None:
        """Begin to put the anchor in by itself, unless it is, before holders are taken.

        If that can't be, each holder still removes its own anchor last.
        """
        if self._holders and not self._anchor:
            share = [self._anchor_point]
            with suppress(errors.AttachFailed):  # no process can be started: see above
                holders = self._start([share], until=self._alone, are_to_last=is_to_last)
                self._anchor, self._anchor_starts = holders[0], True

    def await_anchor(self) -> None:
        """Wait until it is in, or can't be: the target may have ended."""
        if self._anchor and self._anchor_starts:
            self._anchor_starts = False
            try:
                _all_in([self._anchor])
            except errors.EbpfprofError:
                self._anchor = None

    def take_holders(self) -> list[Holder]:
        """The processes to end for all probes but the anchor to be removed."""
        holders, self._holders = self._holders, []
        return holders

    def leftovers(self) -> list[int]:
        """Runtime addresses of breakpoints of ours that the kernel could not remove.

        To be called while only the anchor is in. A probe that is put in again at the same place and
        detached takes an old breakpoint with it: so these are those that stay.
        """
        left, leaks = self._text.breakpoints(), self.context.kernel_log.leaks()
        if not left or leaks == 0:
            return []  # another profiler's
        noop = self.context.noop_program
        again = [replace(self._points[address], program=noop) for address in left]
        try:
            until = self.context.until
            probe_holders.end(_all_in(self._start([again], until=until, are_to_last=False)))
        except errors.EbpfprofError:
            are_ours = leaks is not None
        else:
            are_ours = self.context.kernel_log.leaks() != leaks
        return self._text.breakpoints() if are_ours else []

    def take_anchor(self) -> list[Holder]:
        """The process to end for the anchor to be removed; nothing else can be done afterwards."""
        for fd in (self._file_fd, self._alone, self._others):
            os.close(fd)
        return [self._anchor] if self._anchor else []

    def _shared_out(self, points: Sequence[ProbePoint], count: int) -> list[list[ProbePoint]]:
        """What each of `count` holders holds: a link has all points of a program."""
        if not self.context.uses_links:
            return [list(points[start::count]) for start in range(count)]
        programs = list(dict.fromkeys(point.program for point in points))
        shares = [programs[start::count] for start in range(count)]
        return [[point for point in points if point.program in share] for share in shares]

    def _start(
        self, shares: Sequence[Sequence[ProbePoint]], *, until: int, are_to_last: bool
    ) -> list[Holder]:
        """Start a process for each share, or raise AttachFailed; see _all_in()."""
        stays_open = self._alone if until == self._alone else self._others
        started: list[Holder] = []
        try:
            for share in shares:
                opens = partial(_open, self._file_fd, self.pid, share, self.context.uses_links)
                fds = {self._file_fd, *(point.program for point in share)} - {NO_PROGRAM}
                pipes = {"until": until, "stays_open": stays_open}
                started.append(Holder(opens, fds=fds, is_to_last=are_to_last, **pipes))
        except BaseException:  # Ctrl-C, too: no probe may stay
            probe_holders.end(started)
            raise
        return started


def _all_in(holders: list[Holder]) -> list[Holder]:
    """Wait until all have their probes in; if one has not, end them and raise its error."""
    try:
        for failure in [holder.await_in() for holder in holders]:
            if failure:
                raise failure
    except BaseException:  # Ctrl-C, too: no probe may stay
        probe_holders.end(holders)
        raise
    return holders


def detach(targets: Collection[HeldProbes], *, anchors_stay: bool) -> None:
    """Detach the probes of several targets side by side, the anchors last, if at all.

    Raises AttachFailed if some were removed before, or breakpoints stay, which is also written to
    the kernel's log.
    """
    for held in targets:
        held.start_anchor(is_to_last=anchors_stay)
    for held in targets:
        held.await_anchor()
    were_in = probe_holders.end([holder for held in targets for holder in held.take_holders()])
    left = {held.pid: held.leftovers() for held in targets}
    if not anchors_stay:
        were_in &= probe_holders.end([anchor for held in targets for anchor in held.take_anchor()])
    if stayed := [_stayed(pid, addresses) for pid, addresses in left.items() if addresses]:
        warn_in_kernel_log(" ".join(stayed))
        raise errors.AttachFailed(" ".join(stayed))
    if not were_in:
        raise probe_holders.killed()


def _stayed(pid: int, addresses: Sequence[int]) -> str:
    breakpoints = "1 breakpoint" if len(addresses) == 1 else f"{len(addresses)} breakpoints"
    return (
        f"The kernel could not remove {breakpoints} from process {pid} (at "
        f"{', '.join(map(hex, addresses))}), even when asked again. The process runs on as "
        "before, but each thread that passes there loses some microseconds: restart it when you "
        "can."
    )


def _open(
    file_fd: int, pid: int, points: Sequence[ProbePoint], uses_links: bool, fds: Mapping[int, int]
) -> None:
    """Open probes in a holder; they stay as long as it has their file descriptors.

    `fds` are the holder's file descriptors by their numbers in the process that started it.
    """
    there = [replace(point, program=fds.get(point.program, NO_PROGRAM)) for point in points]
    list(uprobes.open_probes(f"/proc/self/fd/{fds[file_fd]}", pid, there, uses_links=uses_links))
