"""How many waits were no longer than fixed bounds: what counters of a long time need.

A profile has many buckets of lengths, and which ones depends on the program. Metrics have the same
few for each program and each time, so that they can be added up and compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ebpfprof.profile.idle import split
from ebpfprof.profile.model import Profile
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram

BOUNDS_NS: Final = tuple(1 << bits for bits in range(10, 37))
"""1.024 µs to 68.7 s, each twice as long as the one before. All are limits of buckets of SCALE, so
that no bucket has to be divided."""
_LIMITS: Final = tuple(map(SCALE.bucket_of, BOUNDS_NS))


class KnownWaits(NamedTuple):
    """The waits of a profile whose length is known, and how long they took together."""

    lengths: WaitHistogram
    ns: float

    def __bool__(self) -> bool:
        return bool(self.lengths)


def known_waits(profile: Profile) -> KnownWaits:
    """Those of a profile of waits that are not idle.

    Of a stack with waits of unknown length, the known ones have the same mean.
    """
    if not any(sample.lengths for sample in profile.samples):
        return KnownWaits(WaitHistogram(), 0.0)
    waits = [sample for sample in split(profile)[0].samples if sample.lengths]
    ns = 0.0
    for sample in waits:
        known, count = sample.lengths.total, sample.values[0]
        ns += sample.values[-1] * (known / count if count > known else 1.0)
    return KnownWaits(WaitHistogram.together(sample.lengths for sample in waits), ns)


@dataclass(slots=True)
class LengthCounts:
    """How many waits were no longer than each of BOUNDS_NS, of all, and their time; none falls.

    A wait that had already counted may go on, and then counts as longer (WaitHistogram): that is a
    counter that falls, and counters must not.
    """

    counts: list[float] = field(default_factory=lambda: [0.0] * (len(BOUNDS_NS) + 1))
    """By bound, the last one of all waits of known length."""
    ns: float = 0.0
    _sums: list[float] = field(default_factory=lambda: [0.0] * (len(BOUNDS_NS) + 1))

    def add(self, waits: KnownWaits) -> None:
        """Add the waits of another time."""
        for bucket, count in waits.lengths.rows():
            for number, limit in enumerate(_LIMITS):
                if bucket < limit:
                    self._sums[number] += count
            self._sums[-1] += count
        self.counts = [max(pair) for pair in zip(self.counts, self._sums, strict=True)]
        self.ns += max(0.0, waits.ns)

    def copy(self) -> LengthCounts:
        """A copy that does not change."""
        return LengthCounts(list(self.counts), self.ns, list(self._sums))
