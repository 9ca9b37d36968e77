"""Costs that are smaller than the machine's noise: rounds in pairs, and how sure the result is.

Each round with a profiler stands between two without one, a moment before and after it, so that
what changes slowly (clock frequency, neighbours of a virtual machine, heat) hits both alike. The
order of profilers is another one each time, so that nothing that repeats hits one of them alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

_RESAMPLED: Final = 2_000
_SURE: Final = 0.95
_SEED: Final = 1

# Rounds in the last dimension; of bare ones, those before and after in one more.
Name = TypeVar("Name")

Numbers = npt.NDArray[np.float64]
Statistic = Callable[[Numbers, Numbers], Numbers]


@dataclass(frozen=True)
class Estimate:
    """A number, and between which two it lies with 95 % certainty."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 1 if self.value >= 10 else 2 if self.value >= 2 else 3
        value, low, high = (f"{x:,.{digits}f}" for x in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


@dataclass(frozen=True)
class Pair:
    """What one round measured, and the bare rounds beside it."""

    measured: float
    before: float
    after: float


def schedule(names: Sequence[Name], random_order: random.Random) -> Iterator[Name]:
    """The names for ever, each once in a random order, then again in another one."""
    while True:
        yield from random_order.sample(names, len(names))


def in_pairs(bare: Sequence[float], measured: Sequence[float]) -> list[Pair]:
    """Pairs of rounds that took turns, bare ones first and last: one more than of the others."""
    if len(bare) != len(measured) + 1:
        raise ValueError(f"{len(bare)} bare rounds do not enclose {len(measured)} others")
    return [
        Pair(one, before, after)
        for one, before, after in zip(measured, bare, bare[1:], strict=False)
    ]


def times_bare(pairs: Sequence[Pair]) -> Estimate:
    """How many times as long rounds take: the median of what each took against those beside it."""

    def statistic(measured: Numbers, bare: Numbers) -> Numbers:
        return np.asarray(np.median(measured / bare.mean(axis=-1), axis=-1))

    return _estimate(pairs, statistic)


def _estimate(pairs: Sequence[Pair], statistic: Statistic) -> Estimate:
    """The value, and the bootstrap's interval: of pairs drawn again, with repetitions."""
    measured = np.array([pair.measured for pair in pairs])
    bare = np.array([(pair.before, pair.after) for pair in pairs])
    drawn = np.random.default_rng(_SEED).integers(len(pairs), size=(_RESAMPLED, len(pairs)))
    again = statistic(measured[drawn], bare[drawn])
    low, high = np.quantile(again, [(1 - _SURE) / 2, (1 + _SURE) / 2])
    return Estimate(float(statistic(measured, bare)), float(low), float(high))
