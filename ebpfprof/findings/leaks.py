"""Goroutines of which there are more and more, or that can never continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import place
from ebpfprof.profile.operations import caller, operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.profile.leaks import Suspects

_LEAST: Final = 10
"""Goroutines: fewer that only grow within seconds are as likely a little more load."""
_MOST: Final = 2


def find(evidence: Evidence) -> Iterator[Finding]:
    """Groups that grew in each dump while none of them ended, and those that can never go on."""
    suspects = [one for one in evidence.leaks if one.is_certain or one.came >= _LEAST]
    for one in suspects[:_MOST]:
        yield _finding(one, evidence.program.pid)


def fine(evidence: Evidence) -> str:
    """What was checked."""
    return f"no leak among {counted(len(evidence.diagnosis.dump.goroutines), 'goroutine')}"


def _finding(suspects: Suspects, pid: int) -> Finding:
    group, first = suspects.group, suspects.group.first
    number = counted(len(group.goroutines), "goroutine")
    where = f"{operation(first.frames)} in {place(caller(first.frames))}"
    if suspects.is_certain:
        title = f"Leak: {number} can never continue: {where}."
    elif suspects.is_alive:
        title = f"Leak: {number} do not end, {suspects.per_minute:.0f} more a minute."
    else:
        title = f"Leak: {number} never continued, {suspects.per_minute:.0f} more a minute: {where}."
    created = first.created_by
    lines = (f"Created by {place(created)}.",) if created else ()
    return Finding(
        kind="goroutine_leak",
        level=Level.RISK,
        title=title,
        lines=lines,
        next=f"dump --pid {pid} --watch",
        is_certain=suspects.is_certain,
        place=created or caller(first.frames),
    )
