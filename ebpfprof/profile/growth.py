"""Which of many numbers only grow, from sample to sample, by more than chance does."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_LEAST_SAMPLES: Final = 3
_SURE: Final = 3.0  # standard errors
_MOST_SAMPLES: Final = 1 << 12
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Growing(Generic[Key]):
    """Something whose number only grows: bytes, here.

    It is `now`, grew by `grown` since the first sample and by `per_minute` on the average. `error`
    is the standard error of `grown`, 0 for what is exact.
    """

    key: Key
    now: int
    grown: int
    per_minute: float
    error: float = 0.0


class Growth(Generic[Key]):
    """Compares samples.

    Something grows if even the least of the last third of its samples is more than the most of the
    first third, and the last sample by more than chance does: by three standard errors. What goes
    up and down, such as a cache that is full, does not.
    """

    def __init__(self) -> None:
        self._samples: dict[Key, list[tuple[int, float]]] = {}
        self._times_ns: list[int] = []

    @property
    def samples(self) -> int:
        """How many there were."""
        return len(self._times_ns)

    def add(self, sizes: Mapping[Key, tuple[int, float]], now_ns: int) -> list[Growing[Key]]:
        """The growths as of one more sample, the fastest first.

        `sizes` has a number and its variance for each; what is not in it is 0.
        """
        before = self.samples
        for key, number in sizes.items():
            self._samples.setdefault(key, [(0, 0.0)] * before).append(number)
        self._times_ns.append(now_ns)
        for samples in self._samples.values():
            if len(samples) == before:
                samples.append((0, 0.0))
        self._thin_out()
        growing = (self._growing(key, samples) for key, samples in self._samples.items())
        return sorted(filter(None, growing), key=lambda growth: -growth.per_minute)

    def _growing(self, key: Key, samples: Sequence[tuple[int, float]]) -> Growing[Key] | None:
        third = len(samples) // 3
        if len(samples) < _LEAST_SAMPLES:
            return None
        (first, first_variance), (last, last_variance) = samples[0], samples[-1]
        most, most_variance = max(samples[:third])
        if min(samples[-third:])[0] <= most:
            return None
        # Not beyond the first sample alone: a program that has just started fills what it keeps.
        if last - most <= _SURE * math.sqrt(most_variance + last_variance):
            return None
        grown, error = last - first, math.sqrt(first_variance + last_variance)
        minutes = (self._times_ns[-1] - self._times_ns[0]) / 60e9
        return Growing(key, last, grown, grown / minutes if minutes > 0 else 0.0, error)

    def _thin_out(self) -> None:
        """Forget every other sample once there are very many, and what is 0 in all others."""
        if self.samples < _MOST_SAMPLES:
            return
        self._times_ns = self._times_ns[::2]
        for key, samples in list(self._samples.items()):
            self._samples[key] = samples[::2]
            if not any(number for number, _ in self._samples[key]):
                del self._samples[key]
