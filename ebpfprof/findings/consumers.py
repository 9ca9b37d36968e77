"""Consumers and producers that do not keep up: requests wait to send to a channel that is full, or
to receive from one that is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted
from ebpfprof.findings.channels import Shared, are_at_work, partners, shared_channels
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.pools import is_pool
from ebpfprof.findings.words import doing, mean, mostly, part, place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.moments import Doing
    from ebpfprof.findings.waits import Waits

_LEAST_SHARE: Final = 0.2
"""Of the time of requests: a channel slows senders down on purpose if many come at once."""
_LEAST_OF_PIPELINE: Final = 0.5
"""Of the time of goroutines at work, in a program without requests: some stage is always the
slowest."""
_LEAST_WAITING: Final = 0.25
_PER_CONSUMER: Final = 3.0
"""Goroutines of a program without requests that wait to send, for each that receives."""
_SEND: Final = "chan send"
_SENDERS: Final = ("consumer", "to send to", "receive", "a full")
_RECEIVERS: Final = ("producer", "to receive from", "send", "an empty")
"""For whom they wait, to do what, what those do, and the channel."""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Each channel for which senders, or requests that receive, wait a large part of their time."""
    for channel in shared_channels(evidence):
        if is_pool(channel):
            continue
        waits, others = channel.waits(evidence), partners(evidence, channel)
        if channel.is_send:
            is_found = _is_much(evidence, channel, waits, others)
        else:
            # Requests that wait for an event, which is rare, are fine.
            is_found = (
                bool(others) and are_at_work(others) and _is_much_of_requests(evidence, waits)
            )
        if is_found:
            yield _finding(evidence, channel, waits, others)


def fine(evidence: Evidence) -> str:
    """What was checked."""
    sends = any(activity.operation == _SEND for activity in evidence.work.activities)
    return "no slow consumer" if sends else ""


def _is_much_of_requests(evidence: Evidence, waits: Waits) -> bool:
    is_much = waits.share(evidence).least >= _LEAST_SHARE
    return evidence.work.is_server and is_much and waits.mean(evidence) >= _LEAST_WAITING


def _is_much(evidence: Evidence, channel: Shared, waits: Waits, receiving: Sequence[Doing]) -> bool:
    if evidence.work.is_server:
        return _is_much_of_requests(evidence, waits)
    share, waiting = waits.share(evidence), waits.mean(evidence)
    number = len(receiving) / len(channel.dumps)
    return share.least >= _LEAST_OF_PIPELINE and 0 < number * _PER_CONSUMER <= waiting


def _finding(evidence: Evidence, channel: Shared, waits: Waits, others: Sequence[Doing]) -> Finding:
    """`others` are at the other end of the channel."""
    share = waits.share(evidence)
    role, verb, work, state = _SENDERS if channel.is_send else _RECEIVERS
    wait = f"{evidence.work.who} wait {part(share)} of their time {verb}"
    through = f"{state} channel (capacity {channel.capacity})" if channel.capacity else "a channel"
    waiting, pace = mean(waits.mean(evidence)), waits.often(evidence)
    lines = [f"{waiting} goroutines wait {verb} {through} in {place(waits.place)}{pace}."]
    where = waits.place
    if others:
        where = others[0].goroutine.frames[-1] if others[0].goroutine.frames else where
        number = len({user.goroutine.goid for user in others})
        does = mostly(doing(user.goroutine, user.peer, has_place=not user.peer) for user in others)
        works = f"{work}s" if number == 1 else work
        lines.append(f"{counted(number, 'goroutine')} {works}, and {does}." if does else "")
        title = f"Slow {role} {place(where)}: {wait} it."
    else:
        title = f"Slow {role}: {wait} a channel in {place(where)}."
    return Finding(
        kind=f"slow_{role}",
        level=Level.SLOW,
        title=title,
        lines=tuple(filter(None, lines)),
        share=share.value,
        error=share.error,
        next=f"dump --pid {evidence.program.pid}",
        place=where,
        about=frozenset({channel.address, *(frame for _, frame in channel.places)}),
    )
