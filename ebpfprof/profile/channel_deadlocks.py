"""Deadlocks over channels: goroutines each of which only others of them could let continue.

A goroutine that waits for a lock can continue once those that hold it do. One that waits for a
channel can continue if any other goroutine uses the channel. Who can use one is known from stacks
only, so such a deadlock is likely, not certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.hanging import HANGS_NS

if TYPE_CHECKING:
    from ebpfprof.profile.goroutines import DumpedGoroutine

_SEND: Final = "chan send"
_ON_CHANNELS: Final = (_SEND, "chan receive")

ChannelUsers = Mapping[int, tuple[int, ...]]
"""The ids of goroutines that can use a channel, by its address."""


@dataclass(frozen=True, slots=True)
class ChannelDeadlock:
    """Goroutines that wait for each other: each for the next, the last for the first.

    The first one waits for a channel. `behind` are others, which wait for these.
    """

    goroutines: tuple[DumpedGoroutine, ...]
    behind: tuple[DumpedGoroutine, ...]


def channels_of_hangs(goroutines: Iterable[DumpedGoroutine]) -> set[int]:
    """The channels for which goroutines hang that others wait for, or that send.

    Goroutines that receive are idle, mostly: they count only if they may hold a lock that others
    want.
    """
    hanging = [one for one in goroutines if _hangs(one)]
    holders = {goid for one in hanging for goid in one.waits_for.may_hold}
    return {
        channel.address
        for one in hanging
        if one.state == _SEND or (one.state in _ON_CHANNELS and one.goid in holders)
        for channel in one.channels
    }


def channel_deadlocks(
    goroutines: Iterable[DumpedGoroutine], users: ChannelUsers
) -> list[ChannelDeadlock]:
    """The deadlocks over channels, those of most goroutines first."""
    hanging = {one.goid: one for one in goroutines if _hangs(one)}
    needed = {goid: _needed(one, hanging, users) for goid, one in hanging.items()}
    stuck = _closed({goid: others for goid, others in needed.items() if others})
    circles: dict[frozenset[int], list[int]] = {}
    members: dict[frozenset[int], list[int]] = {}
    for goid in sorted(stuck):
        circle = _circle_from(goid, stuck)
        key = frozenset(circle)
        circles.setdefault(key, circle)
        members.setdefault(key, []).append(goid)
    deadlocks = []
    for key, circle in circles.items():
        first = min((goid for goid in circle if hanging[goid].state in _ON_CHANNELS), default=None)
        if first is None or len(circle) < 2:
            continue
        at = circle.index(first)
        deadlocks.append(
            ChannelDeadlock(
                tuple(hanging[goid] for goid in (*circle[at:], *circle[:at])),
                tuple(hanging[goid] for goid in members[key] if goid not in key),
            )
        )
    return sorted(deadlocks, key=lambda one: -len(one.goroutines) - len(one.behind))


def _hangs(goroutine: DumpedGoroutine) -> bool:
    return goroutine.waited_ns >= HANGS_NS and goroutine.wait is not None


def _needed(
    goroutine: DumpedGoroutine, hanging: Mapping[int, DumpedGoroutine], users: ChannelUsers
) -> list[int]:
    """The goroutines of which one at least must continue first; [] if they are not known."""
    waits = goroutine.waits_for
    if waits.lock:
        return [waits.behind] if waits.behind else list(waits.surely_hold or waits.may_hold)
    if goroutine.state not in _ON_CHANNELS or len(goroutine.channels) != 1:
        return []
    channel = goroutine.channels[0].address
    return [
        goid
        for goid in users.get(channel, ())
        if goid != goroutine.goid and not _waits_beside(hanging.get(goid), goroutine)
    ]


def _waits_beside(other: DumpedGoroutine | None, goroutine: DumpedGoroutine) -> bool:
    """Whether it waits for the same channel in the same way."""
    return (
        other is not None
        and other.state == goroutine.state
        and any(one.address == goroutine.channels[0].address for one in other.channels)
    )


def _closed(needed: Mapping[int, list[int]]) -> dict[int, list[int]]:
    """Those all of whose others are among them, too."""
    left = dict(needed)
    while free := [goid for goid, others in left.items() if not left.keys() >= set(others)]:
        for goid in free:
            del left[goid]
    return left


def _circle_from(goid: int, needed: Mapping[int, list[int]]) -> list[int]:
    """The circle that is reached from a goroutine."""
    way: list[int] = []
    while goid not in way:
        way.append(goid)
        goid = needed[goid][0]
    return way[way.index(goid) :]
