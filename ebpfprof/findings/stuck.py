"""Goroutines that can never continue, or have not for seconds: deadlocks, lost wakes, hangs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import ages, counted
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import doing, place, rounded
from ebpfprof.profile.asleep import Asleep
from ebpfprof.profile.deadlocks import Circle
from ebpfprof.profile.handlers import is_in_request
from ebpfprof.profile.hanging import hanging
from ebpfprof.profile.operations import caller, operation
from ebpfprof.profile.standing import LARGE, are_abandoned, waiting_by_channel
from ebpfprof.profile.waiting_for import Sureness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.profile.goroutines import DumpedGoroutine
    from ebpfprof.profile.hanging import Hanging
    from ebpfprof.profile.leaks import Suspects
    from ebpfprof.profile.stuck import Held, Stuck

_MOST_MEMBERS: Final = 3
_MOST_HANGS: Final = 3
_LEAST_REQUESTS: Final = 5
"""That never continued, while more and more came: a few may be slow ones."""
_JOINS: Final = ("WaitGroup.Wait", "Cond.Wait")
"""What others must do for a request. Requests that wait for a channel may be long polls."""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Deadlocks, lost wakes and programs that are all asleep; then goroutines that hang."""
    pid = evidence.program.pid
    for one in evidence.diagnosis.stuck:
        yield _stuck(one, evidence)
    known = {member.goid for one in evidence.diagnosis.stuck for member in one.goroutines}
    waiting = waiting_by_channel(evidence.diagnosis.dump.goroutines)
    held = {held.lock.address: held for held in evidence.diagnosis.held}
    hanging_places = [
        group
        for group in hanging(evidence.diagnosis.dump.goroutines)
        if not known.issuperset(member.goid for member in group.goroutines)
        # Many, each of which waits to send to a channel of its own: they leak, and nothing hangs.
        and not (len(group.goroutines) >= LARGE and are_abandoned(group.goroutines, waiting))
    ]
    for group in hanging_places[:_MOST_HANGS]:
        yield _hang(group, held, pid)
    places = {group.place for group in hanging_places}
    for suspects in requests_that_hang(evidence.leaks)[:_MOST_HANGS]:
        if caller(suspects.group.first.frames) not in places:
            yield _requests(suspects, pid)


def requests_that_hang(suspects: Iterable[Suspects]) -> list[Suspects]:
    """Requests that wait for other goroutines: there are more and more, and none continues."""
    return [
        one
        for one in suspects
        if one.came >= _LEAST_REQUESTS
        and not one.is_alive
        and is_in_request(one.group.first.frames)
        and operation(one.group.first.frames) in _JOINS
    ]


def _requests(suspects: Suspects, pid: int) -> Finding:
    frames = suspects.group.first.frames
    where = caller(frames)
    number = counted(len(suspects.group.goroutines), "request")
    return Finding(
        kind="hang",
        level=Level.STUCK,
        title=f"Hang: {number} never continued: {operation(frames)} in {place(where)}.",
        lines=(f"There are about {rounded(suspects.per_minute)} more each minute.",),
        next=f"dump --pid {pid} --watch",
        place=where,
    )


def fine(evidence: Evidence) -> str:
    """What was checked."""
    return "no deadlock, no hang"


def _behind(members: Iterable[DumpedGoroutine], all_of_them: Iterable[DumpedGoroutine]) -> int:
    """How many other goroutines wait for locks of these, or for locks of those that do."""
    held_by: defaultdict[int, list[int]] = defaultdict(list)
    for goroutine in all_of_them:
        for goid in goroutine.waits_for.may_hold:
            held_by[goid].append(goroutine.goid)
    stuck = {member.goid for member in members}
    behind, last = set(stuck), list(stuck)
    while last:
        last = [goid for holder in last for goid in held_by[holder] if goid not in behind]
        behind.update(last)
    return len(behind - stuck)


def _stuck(stuck: Stuck, evidence: Evidence) -> Finding:
    pid = evidence.program.pid
    members = stuck.goroutines
    number = counted(len(members), "goroutine")
    if isinstance(stuck, Circle):
        kind = "deadlock"
        title = f"Deadlock: {number} wait for locks of each other and can never continue."
        if behind := _behind(members, evidence.diagnosis.dump.goroutines):
            verb = "waits" if behind == 1 else "wait"
            title = f"{title[:-1]}; {behind} more {verb} behind them."
    elif isinstance(stuck, Asleep):
        kind = "asleep"
        title = f"All {number} are asleep and wait for each other."
    else:
        kind = "lost_wake"
        what = stuck.lock.name or f"a {stuck.lock.type}"
        verb = "waits" if len(members) == 1 else "wait"
        title = f"Lost wake: {number} {verb} for {what}, which is free."
    lines = tuple(_member(member) for member in members[:_MOST_MEMBERS])
    return Finding(
        kind=kind,
        level=Level.STUCK,
        title=title,
        lines=lines,
        next=f"doctor --pid {pid}",
        is_certain=stuck.sureness is Sureness.CERTAIN,
        place=caller(members[0].frames) if members else None,
    )


def _member(goroutine: DumpedGoroutine) -> str:
    lock = goroutine.waits_for.lock
    what = f" for {lock.name}" if lock and lock.name else ""
    where = place(caller(goroutine.frames))
    return f"Goroutine {goroutine.goid} waits{what} in {where}: {operation(goroutine.frames)}."


def _hang(group: Hanging, held: dict[int, Held], pid: int) -> Finding:
    members = group.goroutines
    newest_ns = min(member.waited_ns for member in members)
    oldest_ns = max(member.waited_ns for member in members)
    verb = "has" if len(members) == 1 else "have"
    lock = next((m.waits_for.lock for m in members if m.waits_for.lock), None)
    what = f" for {lock.name}" if lock and lock.name else ""
    title = (
        f"Hang: {counted(len(members), 'goroutine')} {verb} waited{what} "
        f"{ages(newest_ns, oldest_ns, 2)} or longer: {group.operation} in {place(group.place)}."
    )
    holders = held[lock.address].holders[:1] if lock and lock.address in held else ()
    lines = [f"Held by goroutine {holder.goid}, which {doing(holder)}." for holder in holders]
    return Finding(
        kind="hang",
        level=Level.STUCK,
        title=title,
        lines=tuple(lines),
        next=f"dump --pid {pid}",
        place=group.place,
    )
