"""Pools that are too small: requests wait for a connection, a place or a token of a few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted, percent
from ebpfprof.findings.channels import Shared, shared_channels, users
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.network import HTTP_CONNECTION, dialing_part
from ebpfprof.findings.waits import Waits
from ebpfprof.findings.words import doing, mean, mostly, part, place, routes
from ebpfprof.profile.network_peers import HTTP_ANSWER

if TYPE_CHECKING:
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.moments import Doing, GoroutineMoment

_LEAST_SHARE: Final = 0.2
"""Of the time of requests: pools are there to limit, so short waits for them are on purpose."""
_LEAST_WAITING: Final = 0.25
"""Goroutines at a time: fewer are moments in which a few more requests came."""
_USED: Final = 0.5
"""Of the places of a channel: at least these are in the hands of goroutines that have passed it, or
it is no pool."""
_MOST_OBJECTS: Final = 2  # of which the counters are shown
_SQL_CONNECTION: Final = "sql connection"
_SEMAPHORE: Final = "semaphore Acquire"
_NAMED: Final = {
    _SQL_CONNECTION: "a connection of database/sql",
    _SEMAPHORE: "a semaphore",
    "rate limit": "a rate limiter",
    HTTP_CONNECTION: "a connection of net/http",
    "HTTP stream": "a stream of HTTP/2",
    "gRPC stream": "a stream of gRPC",
    "gRPC connection": "a connection of gRPC",
}
"""What is waited for, by operation. An errgroup's limit is not among them: a request waits for work
of its own there."""
_SQL: Final = "database/sql.(*"


def find(evidence: Evidence) -> Iterator[Finding]:
    """Each pool that takes a large part of the time of requests."""
    for operation, resource in _NAMED.items():
        waits = _named(evidence, operation)
        if _is_starved(evidence, waits):
            passed = [_users(evidence, operation, waits, moment) for moment in evidence.moments.all]
            yield _finding(evidence, resource, waits, passed, _counters(evidence, operation))
    for channel in shared_channels(evidence):
        waits = channel.waits(evidence)
        if is_pool(channel) and _is_starved(evidence, waits):
            verb = "a place in" if channel.is_send else "an item of"
            resource = f"{verb} a channel (capacity {channel.capacity})"
            passed = [users(channel.waiting, moment) for moment in channel.dumps]
            passed = [users[: channel.capacity] for users in passed]  # some had moved on
            yield _finding(evidence, resource, waits, passed)


def fine(evidence: Evidence) -> str:
    """The time for which requests wait for pools."""
    shares = [_named(evidence, operation).share(evidence).value for operation in _NAMED]
    return f"pools {percent(sum(shares))}" if any(shares) else ""


def is_pool(channel: Shared) -> bool:
    """Whether a channel is a pool or a semaphore: what it holds, others use meanwhile."""
    if not channel.capacity:
        return False
    passed = sum(len(users(channel.waiting, moment)) for moment in channel.dumps)
    return passed >= _USED * channel.capacity * len(channel.dumps)


def _is_starved(evidence: Evidence, waits: Waits) -> bool:
    return waits.share(evidence).least >= _LEAST_SHARE and waits.mean(evidence) >= _LEAST_WAITING


def _named(evidence: Evidence, operation: str) -> Waits:
    free = 1.0
    if operation == HTTP_CONNECTION:
        free = 1.0 - min(1.0, sum(dialing_part(evidence).values()))
    waits = Waits()
    for activity in evidence.work.activities:
        if activity.operation == operation and (activity.is_request or not evidence.work.is_server):
            waits.parts.append((activity, free, 0.0))
            waits.seen += evidence.moments.of(activity)
    return waits


def _users(
    evidence: Evidence, operation: str, waits: Waits, moment: GoroutineMoment
) -> list[Doing]:
    """The goroutines that use what others wait for."""
    if operation == HTTP_CONNECTION:
        return [user for user in moment.all if user.operation == HTTP_ANSWER]
    if operation == _SQL_CONNECTION:
        return [
            user
            for user in moment.all
            if user.operation != operation
            and any(frame.function.startswith(_SQL) for frame in user.goroutine.frames[:-1])
        ]
    return users(waits.seen, moment)


def _counters(evidence: Evidence, operation: str) -> list[str]:
    """What the pools of this kind for which goroutines wait count themselves, in sentences."""
    if operation == _SQL_CONNECTION:
        wanted = [pool for pool in evidence.pools.databases if pool.waits or pool.after.waiting]
        wanted.sort(key=lambda pool: (-pool.waited_ns, -pool.after.waiting))
        return [pool.sentence() for pool in wanted[:_MOST_OBJECTS]]
    if operation == _SEMAPHORE:
        taken = [semaphore for semaphore in evidence.pools.semaphores if semaphore.waiting]
        taken.sort(key=lambda semaphore: -semaphore.waiting)
        return [
            f"{semaphore.used:,} of {semaphore.size:,} in use, "
            f"{counted(semaphore.waiting, 'goroutine')} waiting."
            for semaphore in taken[:_MOST_OBJECTS]
        ]
    if operation == HTTP_CONNECTION:
        full = [pool for pool in evidence.pools.http if pool.open >= pool.limit]
        return [
            f"{pool.open} of {pool.limit} connections to {pool.host} are open (MaxConnsPerHost)."
            for pool in full[:_MOST_OBJECTS]
        ]
    return []


def _text(user: Doing) -> str:
    return doing(user.goroutine, user.peer, has_place=not user.peer)


def _finding(
    evidence: Evidence,
    resource: str,
    waits: Waits,
    passed: Sequence[Sequence[Doing]],
    counters: Sequence[str] = (),
) -> Finding:
    """`counters` are sentences on the pool, if it counts what is in use itself."""
    share = waits.share(evidence)
    number = mean(waits.mean(evidence))
    lines = list(counters) or [
        f"{number} goroutines wait for it on average{waits.often(evidence)}."
    ]
    most = max(map(len, passed), default=0)
    if most:
        does = mostly(_text(user) for of_moment in passed for user in of_moment)
        verb = "uses" if most == 1 else "use"
        number = f"{counted(most, 'goroutine')} {verb} it at most"
        lines = lines if counters else [f"{lines[0][:-1]}; {number}."]
        lines += [f"A goroutine that uses it {does}."] if does else []
    lines += routes(waiter.goroutine for waiter in waits.seen)
    return Finding(
        kind="starved_pool",
        level=Level.SLOW,
        title=f"Pool: {evidence.work.who} wait {part(share)} of their time for {resource}, in "
        f"{place(waits.place)}.",
        lines=tuple(lines),
        share=share.value,
        error=share.error,
        next=f"attach --pid {evidence.program.pid} --profile wall",
        place=waits.place,
    )
