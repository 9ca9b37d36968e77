"""Consumers that do not keep up: requests wait to send to a channel that is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted
from ebpfprof.findings.channels import Shared, consumers, shared_channels
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.pools import is_pool
from ebpfprof.findings.words import doing, mostly, part, place

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


def find(evidence: Evidence) -> Iterator[Finding]:
    """Each channel for which senders wait a large part of their time."""
    for channel in shared_channels(evidence):
        if not channel.is_send or is_pool(channel):
            continue
        waits = channel.waits(evidence)
        receiving = consumers(evidence, channel)
        if _is_much(evidence, channel, waits, receiving):
            yield _finding(evidence, channel, waits, receiving)


def fine(evidence: Evidence) -> str:
    """What was checked."""
    sends = any(one.operation == _SEND for one in evidence.work.activities)
    return "no slow consumer" if sends else ""


def _is_much(evidence: Evidence, channel: Shared, waits: Waits, receiving: Sequence[Doing]) -> bool:
    share, mean = waits.share(evidence), waits.mean(evidence)
    if mean < _LEAST_WAITING:
        return False
    if evidence.work.is_server:
        return share.least >= _LEAST_SHARE
    number = len(receiving) / len(channel.dumps)
    return share.least >= _LEAST_OF_PIPELINE and 0 < number * _PER_CONSUMER <= mean


def _finding(
    evidence: Evidence, channel: Shared, waits: Waits, receiving: Sequence[Doing]
) -> Finding:
    share = waits.share(evidence)
    of = f"{part(share)} of {evidence.work.of}"
    full = f"a full channel of {channel.capacity}" if channel.capacity else "a channel"
    lines = [
        f"{waits.mean(evidence):.1f} goroutines wait to send to {full} in {place(waits.place)}."
    ]
    where = waits.place
    if receiving:
        where = receiving[0].goroutine.frames[-1] if receiving[0].goroutine.frames else where
        name = place(where)
        number = len({one.goroutine.goid for one in receiving})
        does = mostly(doing(one.goroutine, one.peer, has_place=not one.peer) for one in receiving)
        verb = "receives" if number == 1 else "receive"
        lines.append(f"{counted(number, 'goroutine')} {verb}, and {does}." if does else "")
        title = f"Slow consumer {name}: {of} waits for it."
    else:
        title = f"Slow consumer: {of} waits to send in {place(where)}."
    return Finding(
        kind="slow_consumer",
        level=Level.SLOW,
        title=title,
        lines=tuple(filter(None, lines)),
        share=share.value,
        error=share.error,
        next=f"dump --pid {evidence.program.pid}",
        place=where,
    )
