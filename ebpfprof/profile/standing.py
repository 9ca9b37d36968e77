"""Large groups of goroutines that stand still at one place in a send: leaks, or a receiver gone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from ebpfprof.profile.goroutines import GoroutineDump, GoroutineGroup, groups

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


def standing_senders(dump: GoroutineDump) -> list[Senders]:
    """All such groups of LARGE goroutines or more, the largest first.

    A goroutine that sends does work for another one, so it is never idle. Goroutines that wait to
    receive, or for the network, are as many in programs that are fine: pools, idle connections.
    """
    waiting = Counter(
        channel.address for goroutine in dump.goroutines for channel in goroutine.channels
    )
    senders = []
    for group in groups(each for each in dump.goroutines if each.stood_ns and each.state == _SEND):
        if len(group.goroutines) >= LARGE:
            is_abandoned = all(
                len(each.channels) == 1 and waiting[each.channels[0].address] == 1
                for each in group.goroutines
            )
            senders.append(Senders(group, is_abandoned and not dump.beyond))
    return senders
