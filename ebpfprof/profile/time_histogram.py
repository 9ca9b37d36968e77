"""How often something took how long, in the buckets of Go's runtime."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ebpfprof.profile.log_linear import LogLinear


@dataclass(frozen=True)
class TimeHistogram:
    """Numbers of durations by bucket (LogLinear), as runtime.timeHistogram has them.

    `above` are durations beyond all buckets; durations below zero are left out.
    """

    counts: tuple[int, ...]
    least_bits: int
    part_bits: int
    above: int = 0

    @cached_property
    def total(self) -> int:
        """How many durations there are."""
        return sum(self.counts) + self.above

    def lower_ns(self, bucket: int) -> int:
        """The least duration of a bucket, in nanoseconds; of the one after it, its limit."""
        return LogLinear(self.least_bits, self.part_bits).lower_ns(bucket)

    def quantile_ns(self, part: float) -> float:
        """The duration that this part (0 to 1) of them do not exceed: the middle of its bucket.

        0 if there are none.
        """
        wanted, seen = min(part * self.total, self.total), 0
        for bucket, number in enumerate(self.counts):
            seen += number
            if number and seen >= wanted:
                return (self.lower_ns(bucket) + self.lower_ns(bucket + 1)) / 2
        return float(self.lower_ns(len(self.counts))) if self.above else 0.0

    def longest_ns(self) -> float:
        """The longest duration: the middle of its bucket, 0 if there is none."""
        return self.quantile_ns(1.0)

    def from_ns(self, least_ns: int) -> TimeHistogram:
        """Only the durations in buckets that begin at `least_ns` or above."""
        counts = tuple(
            number if self.lower_ns(bucket) >= least_ns else 0
            for bucket, number in enumerate(self.counts)
        )
        return TimeHistogram(counts, self.least_bits, self.part_bits, self.above)

    def __sub__(self, earlier: TimeHistogram) -> TimeHistogram:
        """What was added since then. A counter that went back counts as unchanged."""
        counts = tuple(
            max(0, now - then) for now, then in zip(self.counts, earlier.counts, strict=True)
        )
        above = max(0, self.above - earlier.above)
        return TimeHistogram(counts, self.least_bits, self.part_bits, above)
