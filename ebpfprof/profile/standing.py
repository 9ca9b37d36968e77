"""Large groups of goroutines that stand still at one place in a send: leaks, or a receiver gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump, GoroutineGroup, groups

LARGE: Final = 10
"""Goroutines: fewer that stand still in a send may be the producers of a slow pipeline."""
_SEND: Final = "chan send"


@dataclass(frozen=True, slots=True)
class Senders:
    """Goroutines that wait to send, did not move, and have the same stack and creator.

    `is_abandoned`: each waits for a channel of its own, for which no other goroutine waits.
    """

    group: GoroutineGroup
    is_abandoned: bool


def waiting_by_channel(goroutines: Iterable[DumpedGoroutine]) -> Counter[int]:
    """How many goroutines wait for each channel, by its address."""
    return Counter(channel.address for one in goroutines for channel in one.channels)


def are_abandoned(goroutines: Iterable[DumpedGoroutine], waiting: Counter[int]) -> bool:
    """Whether each waits for a channel of its own, for which no other goroutine waits."""
    return all(
        len(one.channels) == 1 and waiting[one.channels[0].address] == 1 for one in goroutines
    )


def standing_senders(dump: GoroutineDump) -> list[Senders]:
    """All such groups of LARGE goroutines or more, the largest first.

    A goroutine that sends does work for another one, so it is never idle. Goroutines that wait to
    receive, or for the network, are as many in programs that are fine: pools, idle connections.
    """
    waiting = waiting_by_channel(dump.goroutines)
    senders = []
    for group in groups(
        goroutine
        for goroutine in dump.goroutines
        if goroutine.stood_ns and goroutine.state == _SEND
    ):
        if len(group.goroutines) >= LARGE:
            is_abandoned = are_abandoned(group.goroutines, waiting)
            senders.append(Senders(group, is_abandoned and not dump.beyond))
    return senders
