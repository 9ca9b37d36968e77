"""Stacks whose memory in use only grows, found by looking again and again: leaks, perhaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ebpfprof.profile.model import Location, Profile

_LEAST_LOOKS: Final = 3
_SURE: Final = 3.0  # standard errors
_MOST_LOOKS: Final = 1 << 12
_BYTES: Final = "bytes"


@dataclass(frozen=True, slots=True)
class GrowingStack:
    """A stack, and the memory in use that it allocated (bytes).

    It is `now`, grew by `grown` since the first look and by `per_minute` on the average. `error` is
    the standard error of `grown`, 0 if every allocation is sampled.
    """

    locations: tuple[Location, ...]
    now: int
    grown: int
    per_minute: float
    error: float


@dataclass(slots=True)
class _History:
    """In use and its variance at each look."""

    looks: list[tuple[int, float]]


class HeapGrowth:
    """Compares heap profiles of one process.

    A stack grows if even the least of the last third of its looks is more than the most of the
    first third, by more than chance does: by three standard errors of the sampling. What goes up
    and down, such as a cache that is full, does not.
    """

    def __init__(self) -> None:
        self._stacks: dict[tuple[Location, ...], _History] = {}
        self._times_ns: list[int] = []

    @property
    def looks(self) -> int:
        """How many there were."""
        return len(self._times_ns)

    def add(self, profile: Profile, now_ns: int) -> list[GrowingStack]:
        """What one more look tells, the fastest first. Each is to be of another collection.

        `profile` is a heap profile; what is in use is its last value.
        """
        before = self.looks
        found = _in_use(profile)
        for stack, (used, variance) in found.items():
            history = self._stacks.setdefault(stack, _History([(0, 0.0)] * before))
            history.looks.append((used, variance))
        self._times_ns.append(now_ns)
        for history in self._stacks.values():
            if len(history.looks) == before:
                history.looks.append((0, 0.0))
        self._thin_out()
        growing = (self._growing(stack, each.looks) for stack, each in self._stacks.items())
        return sorted(filter(None, growing), key=lambda each: -each.per_minute)

    def _growing(
        self, stack: tuple[Location, ...], looks: Sequence[tuple[int, float]]
    ) -> GrowingStack | None:
        third = len(looks) // 3
        if len(looks) < _LEAST_LOOKS:
            return None
        (first, first_variance), (last, last_variance) = looks[0], looks[-1]
        if min(used for used, _ in looks[-third:]) <= max(used for used, _ in looks[:third]):
            return None
        grown, error = last - first, math.sqrt(first_variance + last_variance)
        if grown <= _SURE * error:
            return None
        minutes = (self._times_ns[-1] - self._times_ns[0]) / 60e9
        rate = grown / minutes if minutes > 0 else 0.0
        return GrowingStack(stack, last, grown, rate, error)

    def _thin_out(self) -> None:
        """Forget every other look once there are very many, and stacks without memory."""
        if self.looks < _MOST_LOOKS:
            return
        self._times_ns = self._times_ns[::2]
        for stack, history in list(self._stacks.items()):
            history.looks = history.looks[::2]
            if not any(used for used, _ in history.looks):
                del self._stacks[stack]


def _in_use(profile: Profile) -> dict[tuple[Location, ...], tuple[int, float]]:
    """The bytes in use of each stack, of objects of all sizes, and the variance of that estimate.

    Of objects of s bytes a part p = 1 - exp(-s/period) is sampled, each on its own, and counts 1/p
    times: n estimated ones have a variance of n (1 - p) / p.
    """
    found: dict[tuple[Location, ...], tuple[int, float]] = {}
    for sample in profile.samples:
        objects, used = sample.values[-2], sample.values[-1]
        size = next((int(e.value) for e in sample.labels if e.key == _BYTES), 0)
        missed = math.exp(-size / profile.period) if profile.period > 1 else 0.0
        variance = max(0, objects) * size * size * missed / (1 - missed) if missed < 1 else 0.0
        before, variance_before = found.get(sample.locations, (0, 0.0))
        found[sample.locations] = before + used, variance_before + variance
    return found
