"""Goroutines of which there are more and more, or that can never continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.subjects import growing
from ebpfprof.findings.words import place, rounded
from ebpfprof.profile.handlers import is_in_request
from ebpfprof.profile.idle import rule_of
from ebpfprof.profile.model import Label, Location, Sample
from ebpfprof.profile.network_peers import READ_LOOP
from ebpfprof.profile.operations import STATE, caller, operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.profile.goroutines import DumpedGoroutine
    from ebpfprof.profile.leaks import Suspects
    from ebpfprof.profile.model import Frame

_LEAST: Final = 10
"""Goroutines: fewer that only grow within seconds are as likely a little more load."""
_MOST: Final = 2


def find(evidence: Evidence) -> Iterator[Finding]:
    """Groups that grew in each dump while none of them ended, and those that can never go on."""
    clients = evidence.moments.client_waits
    suspects = [
        suspect
        for suspect in evidence.leaks
        if suspect.is_certain
        or (
            suspect.came >= _LEAST
            and not _is_load(suspect.group.first, clients)
            and not _is_long_poll(suspect.group.first)
        )
    ]
    for suspect in _one_each(suspects)[:_MOST]:
        yield _finding(suspect, evidence.program.pid)


def fine(evidence: Evidence) -> str:
    """What was checked."""
    return f"no leak among {counted(len(evidence.diagnosis.dump.goroutines), 'goroutine')}"


def _one_each(suspects: Iterable[Suspects]) -> list[Suspects]:
    """The first of those that one line has created, or that wait at one line."""
    kept: list[Suspects] = []
    creators: set[Frame | None] = set()
    places: set[Frame] = set()
    for suspect in suspects:
        first = suspect.group.first
        where = caller(first.frames)
        if first.created_by not in creators and where not in places:
            kept.append(suspect)
        creators |= {first.created_by} - {None}
        places.add(where)
    return kept


def _is_long_poll(goroutine: DumpedGoroutine) -> bool:
    """Whether it may be a request that waits for an event, or until its client goes away."""
    return goroutine.state == "select" and is_in_request(goroutine.frames)


def _is_load(goroutine: DumpedGoroutine, clients: AbstractSet[tuple[Frame, ...]]) -> bool:
    """Whether there are more of a goroutine where there are more clients or connections.

    It waits for its client, or is idle by a rule for Go's library or a module. A connection of
    net/http that waits until its answer is read does not count: the program may never read it.
    """
    if goroutine.frames in clients:
        return True
    stack = tuple(Location(0, None, (frame,)) for frame in goroutine.frames)
    rule = rule_of("wall", Sample(stack, (1, 1), (Label(STATE, goroutine.state),)))
    if rule is None or rule.shape:
        return False
    return goroutine.state != "select" or goroutine.frames[-1].function != READ_LOOP


def _finding(suspects: Suspects, pid: int) -> Finding:
    group, first = suspects.group, suspects.group.first
    number = counted(len(group.goroutines), "goroutine")
    where = f"{operation(first.frames)} in {place(caller(first.frames))}"
    rate = f"about {rounded(suspects.per_minute)}"
    if suspects.is_certain:
        title = f"Leak: {number} can never continue: {where}."
    elif suspects.is_alive:
        title = f"Leak: {number} do not end, {rate} more a minute."
    else:
        title = f"Leak: {number} never continued, {rate} more a minute: {where}."
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
        about=growing(group.goroutines),
    )
