"""Which of many numbers only grow, from look to look, by more than chance does."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_LEAST_LOOKS: Final = 3
_SURE: Final = 3.0  # standard errors
_MOST_LOOKS: Final = 1 << 12
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Growing(Generic[Key]):
    """Something whose number only grows: bytes, here.

    It is `now`, grew by `grown` since the first look and by `per_minute` on the average. `error` is
    the standard error of `grown`, 0 for what is exact.
    """

    key: Key
    now: int
    grown: int
    per_minute: float
    error: float = 0.0


class Growth(Generic[Key]):
    """Compares looks.

    Something grows if even the least of the last third of its looks is more than the most of the
    first third, and the last look by more than chance does: by three standard errors. What goes up
    and down, such as a cache that is full, does not.
    """

    def __init__(self) -> None:
        self._looks: dict[Key, list[tuple[int, float]]] = {}
        self._times_ns: list[int] = []

    @property
    def looks(self) -> int:
        """How many there were."""
        return len(self._times_ns)

    def add(self, found: Mapping[Key, tuple[int, float]], now_ns: int) -> list[Growing[Key]]:
        """What one more look tells, the fastest first.

        `found` has a number and its variance for each; what is not in it is 0.
        """
        before = self.looks
        for key, number in found.items():
            self._looks.setdefault(key, [(0, 0.0)] * before).append(number)
        self._times_ns.append(now_ns)
        for looks in self._looks.values():
            if len(looks) == before:
                looks.append((0, 0.0))
        self._thin_out()
        growing = (self._growing(key, looks) for key, looks in self._looks.items())
        return sorted(filter(None, growing), key=lambda each: -each.per_minute)

    def _growing(self, key: Key, looks: Sequence[tuple[int, float]]) -> Growing[Key] | None:
        third = len(looks) // 3
        if len(looks) < _LEAST_LOOKS:
            return None
        (first, first_variance), (last, last_variance) = looks[0], looks[-1]
        most, most_variance = max(looks[:third])
        if min(looks[-third:])[0] <= most:
            return None
        # Not beyond the first look alone: a program that has just started fills what it keeps.
        if last - most <= _SURE * math.sqrt(most_variance + last_variance):
            return None
        grown, error = last - first, math.sqrt(first_variance + last_variance)
        minutes = (self._times_ns[-1] - self._times_ns[0]) / 60e9
        return Growing(key, last, grown, grown / minutes if minutes > 0 else 0.0, error)

    def _thin_out(self) -> None:
        """Forget every other look once there are very many, and what is 0 in all others."""
        if self.looks < _MOST_LOOKS:
            return
        self._times_ns = self._times_ns[::2]
        for key, looks in list(self._looks.items()):
            self._looks[key] = looks[::2]
            if not any(number for number, _ in self._looks[key]):
                del self._looks[key]
