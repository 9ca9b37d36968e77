"""Goroutines that can never continue, or have not for seconds: deadlocks, lost wakes, hangs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import ages, counted
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.subjects import growing, subjects
from ebpfprof.findings.words import doing, place, rounded
from ebpfprof.profile.asleep import Asleep
from ebpfprof.profile.channel_deadlocks import channel_deadlocks
from ebpfprof.profile.deadlocks import Circle
from ebpfprof.profile.handlers import is_in_request
from ebpfprof.profile.hanging import hanging, hangs
from ebpfprof.profile.operations import caller, operation
from ebpfprof.profile.standing import LARGE, are_abandoned, waiting_by_channel
from ebpfprof.profile.waiting_for import Sureness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.profile.channel_deadlocks import ChannelDeadlock
    from ebpfprof.profile.goroutines import DumpedGoroutine
    from ebpfprof.profile.hanging import Hang
    from ebpfprof.profile.leaks import Suspects
    from ebpfprof.profile.stuck import Stuck
    from ebpfprof.profile.waiting_for import LockState

_MOST_MEMBERS: Final = 3
_MOST_HANGS: Final = 3
_LEAST_REQUESTS: Final = 5
"""That never continued, while more and more came: a few may be slow ones."""
_JOINS: Final = ("WaitGroup.Wait", "Cond.Wait")
"""What others must do for a request. Requests that wait for a channel may be long polls."""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Deadlocks, lost wakes and programs that are all asleep; then goroutines that hang."""
    pid, goroutines = evidence.program.pid, evidence.diagnosis.dump.goroutines
    for group in evidence.diagnosis.stuck:
        yield _stuck(group, evidence)
    known = {member.goid for group in evidence.diagnosis.stuck for member in group.goroutines}
    for deadlock in channel_deadlocks(goroutines, evidence.channel_users):
        members = {goroutine.goid for goroutine in (*deadlock.goroutines, *deadlock.behind)}
        if known.isdisjoint(members):
            yield _over_channel(deadlock, pid)
            known |= members
    waiting = waiting_by_channel(goroutines)
    hanging_places = [
        group
        for group in hanging(goroutines)
        if not known.issuperset(member.goid for member in group.goroutines)
        # Many, each of which waits to send to a channel of its own: they leak, and nothing hangs.
        and not (len(group.goroutines) >= LARGE and are_abandoned(group.goroutines, waiting))
    ]
    for hang in hangs(hanging_places, goroutines)[:_MOST_HANGS]:
        yield _hang(hang, evidence)
    places = {group.place for group in hanging_places}
    for suspects in requests_that_hang(evidence.leaks)[:_MOST_HANGS]:
        if caller(suspects.group.first.frames) not in places:
            yield _requests(suspects, pid)


def requests_that_hang(suspects: Iterable[Suspects]) -> list[Suspects]:
    """Requests that wait for other goroutines: there are more and more, and none continues."""
    return [
        suspect
        for suspect in suspects
        if suspect.came >= _LEAST_REQUESTS
        and not suspect.is_alive
        and is_in_request(suspect.group.first.frames)
        and operation(suspect.group.first.frames) in _JOINS
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
        about=growing(suspects.group.goroutines),
    )


def fine(evidence: Evidence) -> str:
    """What was checked."""
    return "no deadlock, no hang"


def _behind(
    members: Iterable[DumpedGoroutine], goroutines: Iterable[DumpedGoroutine]
) -> list[DumpedGoroutine]:
    """The other goroutines that wait for locks of these, or for locks of those that do."""
    held_by: defaultdict[int, list[DumpedGoroutine]] = defaultdict(list)
    for goroutine in goroutines:
        for goid in goroutine.waits_for.may_hold:
            held_by[goid].append(goroutine)
    known = {member.goid for member in members}
    behind: list[DumpedGoroutine] = []
    last = list(known)
    while last:
        new = {
            goroutine.goid: goroutine
            for goid in last
            for goroutine in held_by[goid]
            if goroutine.goid not in known
        }
        behind += new.values()
        known |= new.keys()
        last = list(new)
    return behind


def _stuck(stuck: Stuck, evidence: Evidence) -> Finding:
    pid = evidence.program.pid
    members = stuck.goroutines
    behind: list[DumpedGoroutine] = []
    number = counted(len(members), "goroutine")
    if isinstance(stuck, Circle):
        kind = "deadlock"
        title = f"Deadlock: {number} wait for each other's locks and can never continue."
        behind = _behind(members, evidence.diagnosis.dump.goroutines)
        title = _with_behind(title, len(behind))
    elif isinstance(stuck, Asleep):
        kind = "asleep"
        title = f"All {number} are asleep and wait for each other."
    else:
        kind = "lost_wake"
        lock = stuck.lock.name or f"a {stuck.lock.type}"
        verb = "waits" if len(members) == 1 else "wait"
        title = f"Lost wake: {number} {verb} for {lock}, which is free."
    lines = tuple(_member(member) for member in members[:_MOST_MEMBERS])
    return Finding(
        kind=kind,
        level=Level.STUCK,
        title=title,
        lines=lines,
        next=f"doctor --pid {pid}",
        is_certain=stuck.sureness is Sureness.CERTAIN,
        place=caller(members[0].frames) if members else None,
        about=subjects((*members, *behind)),
    )


def _with_behind(title: str, behind: int) -> str:
    if not behind:
        return title
    return f"{title[:-1]}; {behind} more {'waits' if behind == 1 else 'wait'} behind them."


def _over_channel(deadlock: ChannelDeadlock, pid: int) -> Finding:
    members = deadlock.goroutines
    wanted = [member.waits_for.lock for member in (members[-1], *members[:-1])]
    title = f"Deadlock: {len(members)} goroutines wait for each other, over a channel."
    return Finding(
        kind="deadlock",
        level=Level.STUCK,
        title=_with_behind(title, len(deadlock.behind)),
        lines=tuple(map(_member, members[:_MOST_MEMBERS], wanted)),
        next=f"dump --pid {pid}",
        place=caller(members[0].frames),
        about=subjects((*members, *deadlock.behind)),
    )


def _member(goroutine: DumpedGoroutine, held: LockState | None = None) -> str:
    """What a goroutine of a deadlock waits for; the lock that it has, if that is given."""
    lock = goroutine.waits_for.lock
    has = f" has {held.name} and" if held and held.name else ""
    for_lock = f" for {lock.name}" if lock and lock.name else ""
    where, does = place(caller(goroutine.frames)), operation(goroutine.frames)
    return f"Goroutine {goroutine.goid}{has} waits{for_lock} in {where}: {does}."


def _hang(hang: Hang, evidence: Evidence) -> Finding:
    members, first, pid = hang.goroutines, hang.groups[0], evidence.program.pid
    newest_ns = min(member.waited_ns for member in members)
    oldest_ns = max(member.waited_ns for member in members)
    verb = "has" if len(members) == 1 else "have"
    lock = next((m.waits_for.lock for m in first.goroutines if m.waits_for.lock), None)
    for_lock = f" for {lock.name}" if lock and lock.name else ""
    time = f"{ages(newest_ns, oldest_ns, 2)} or longer"
    title = (
        f"Hang: {counted(len(members), 'goroutine')} {verb} waited {time}{for_lock}: "
        f"{first.operation} in {place(first.place)}."
    )
    holder = hang.holder
    came = sum(member.waited_ns < evidence.length_ns for member in members) >= LARGE
    return Finding(
        kind="hang",
        level=Level.STUCK,
        title=title,
        lines=(f"Held by goroutine {holder.goid}, which {doing(holder)}.",) if holder else (),
        next=f"dump --pid {pid}",
        place=first.place,
        about=growing(members) if came else subjects(members),
    )
