"""Passes profiles to sinks, with the name of the service, and the times without profiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.service import ProcessEnd, ServiceWindow, Unwatched

if TYPE_CHECKING:
    from ebpfprof.agent.figures import Figures
    from ebpfprof.agent.roster import Member
    from ebpfprof.agent.sinks.sink import Item
    from ebpfprof.continuous.history import Window
    from ebpfprof.continuous.process import RecordedProcess

_SHORTEST_S: Final = 0.05
"""Empty windows that are shorter are dropped."""


class Handover:
    """Maps recorded processes to members of the roster."""

    def __init__(self, give: Callable[[Item], None], figures: Figures) -> None:
        self._give, self._figures = give, figures
        self._members: dict[RecordedProcess, Member] = {}

    def add(self, process: RecordedProcess, member: Member) -> None:
        """Windows of the process belong to this member from now on."""
        self._members[process] = member

    def keep(self, processes: Collection[RecordedProcess]) -> None:
        """Forget all other processes."""
        kept = set(processes)
        self._members = {process: m for process, m in self._members.items() if process in kept}

    def on_window(self, process: RecordedProcess, window: Window) -> None:
        """Pass a window to the sinks. Any thread may call it."""
        member = self._members.get(process)
        if member is None:
            return
        has_samples = any(profile.samples for profile in window.profiles.values())
        if not has_samples and window.end_s - window.start_s < _SHORTEST_S:
            return
        self._figures.note(window, member.verdict.identity)
        self._give(
            ServiceWindow(
                identity=member.verdict.identity,
                pid=process.pid,
                process_start_ns=member.about.started_ns,
                command=process.name,
                go_version=member.about.go_version or "",
                start_s=window.start_s,
                end_s=window.end_s,
                profiles=window.profiles,
            )
        )

    def ended(self, process: RecordedProcess, member: Member) -> None:
        """Report to sinks that a process ended."""
        about = member.about
        self._give(ProcessEnd(about.pid, about.started_ns, process.ended_s))

    def unwatched(self, member: Member, reason: str, begun_s: float, ended_s: float) -> None:
        """Report to sinks that a process was not recorded in this time (Unix), as it should be.

        The process may have started in the middle of it.
        """
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - member.about.started_ns / 1e9
        begun_s = min(max(begun_s, time.time() - age_s), ended_s)
        self._figures.unwatched_s[reason] += ended_s - begun_s
        if member.verdict.reason:
            return  # the settings or the process itself exclude it
        self._give(
            Unwatched(
                identity=member.verdict.identity,
                pid=member.about.pid,
                process_start_ns=member.about.started_ns,
                command=member.about.name,
                start_s=begun_s,
                end_s=ended_s,
                reason=reason,
            )
        )
