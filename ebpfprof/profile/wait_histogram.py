"""How long waits were, by buckets of their lengths: quantiles, and how well these are known.

The buckets are those of the BPF program (bpf/waits/lengths.h): eight for each power of two, so each
is at most 12 % as wide as its middle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ebpfprof.profile.log_linear import LogLinear

SCALE: Final = LogLinear(least_bits=4, part_bits=3)
"""The buckets."""
QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}
"""Those that tables show: which part of the waits is no longer."""
_MAX_ERROR: Final = 0.5
_LEAST_BEYOND: Final = 1.0
_LEAST_UNKNOWN: Final = 0.001  # of the waits: the sums and the lengths are read one after the other
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Quantile:
    """A length that a part of the waits do not exceed: the middle of its bucket, in nanoseconds.

    It lies between `least_ns` and `most_ns`: the limits of the bucket; of an estimate, of those
    one standard error away. `most_ns` is infinite if waits of unknown length may be longer.
    """

    ns: float
    least_ns: float
    most_ns: float

    @property
    def is_known(self) -> bool:
        """Whether it is known within half of its value: else tables have a dash."""
        return max(self.most_ns - self.ns, self.ns - self.least_ns) <= _MAX_ERROR * self.ns


@dataclass(frozen=True, slots=True)
class WaitHistogram:
    """The number of waits by bucket of their length, without empty buckets.

    `buckets` are numbers of SCALE, ascending; `counts` has how many waits each one has. Numbers
    of estimates are no integers. In a difference they may be negative: a wait that had already
    counted went on, and now counts as longer.

    Goroutine samples know lengths only within the time between two of them: `apart_ns`, 0 for
    waits that probes saw. They see no shorter waits than that.

    Each recorded wait stands for `weight` waits, itself among them, even where the number of all
    waits is exact.
    """

    buckets: tuple[int, ...] = ()
    counts: tuple[float, ...] = ()
    apart_ns: float = 0.0
    weight: float = 1.0

    @classmethod
    def of(cls, lengths_ns: Iterable[int]) -> WaitHistogram:
        """Those of waits of these lengths."""
        return cls.counted(Counter(map(SCALE.bucket_of, lengths_ns)))

    @classmethod
    def counted(
        cls, numbers: Mapping[int, float], apart_ns: float = 0.0, weight: float = 1.0
    ) -> WaitHistogram:
        """Those with these numbers of waits by bucket."""
        kept = sorted(bucket for bucket, count in numbers.items() if count)
        return cls(tuple(kept), tuple([numbers[bucket] for bucket in kept]), apart_ns, weight)

    @classmethod
    def together(cls, parts: Iterable[WaitHistogram]) -> WaitHistogram:
        """The waits of all parts."""
        sums: dict[int, float] = {}
        apart_ns, weight = 0.0, 1.0
        for part in parts:
            for bucket, count in part.rows():
                sums[bucket] = sums.get(bucket, 0) + count
            apart_ns, weight = max(apart_ns, part.apart_ns), max(weight, part.weight)
        return cls.counted(sums, apart_ns, weight)

    def __bool__(self) -> bool:
        return bool(self.buckets)

    def __add__(self, other: WaitHistogram) -> WaitHistogram:
        return self.together((self, other)) if self and other else self or other

    def __sub__(self, other: WaitHistogram) -> WaitHistogram:
        return self + -1 * other if other else self

    def __rmul__(self, factor: float) -> WaitHistogram:
        if factor == 1 or not self:
            return self
        counts = tuple([factor * count for count in self.counts])
        return WaitHistogram(self.buckets, counts, self.apart_ns, self.weight)

    def rows(self) -> Iterator[tuple[int, float]]:
        """Each bucket with its number of waits."""
        return zip(self.buckets, self.counts, strict=True)

    @property
    def total(self) -> float:
        """The number of waits with a known length."""
        return sum(self.counts)

    def at_least(self, other: WaitHistogram) -> WaitHistogram:
        """The larger of both numbers in each bucket."""
        if not (self and other):
            return self or other
        both = dict(other.rows())
        both |= {bucket: max(count, both.get(bucket, 0)) for bucket, count in self.rows()}
        apart_ns, weight = max(self.apart_ns, other.apart_ns), max(self.weight, other.weight)
        return self.counted(both, apart_ns, weight)

    def divided(self, count: int, value: int) -> Iterator[tuple[int | None, int, int]]:
        """Events of these lengths, by bucket: their number, and their part of `value`.

        The parts are in proportion to number and length, and add up to `count` and `value`. The
        bucket is None for events of unknown length, and for all if there are none of known length.
        """
        known = [(bucket, number) for bucket, number in self.rows() if number > 0]
        total = sum(number for _, number in known)
        if not known or count <= 0 or value < 0:
            yield None, count, value
            return
        scale = min(1.0, count / total)
        middles = {bucket: SCALE.middle_ns(bucket) for bucket, _ in known}
        whole = sum(middles[bucket] * scale * number for bucket, number in known)
        whole += (count - scale * total) * value / count  # those of unknown length: as the mean
        seen = seen_ns = 0.0
        done, done_value = 0, 0
        for bucket, number in known:
            seen += scale * number
            seen_ns += scale * number * middles[bucket]
            # Differences of rounded sums, so that the parts add up to the whole.
            part, part_value = round(seen) - done, round(value * seen_ns / whole) - done_value
            done, done_value = done + part, done_value + part_value
            if part or part_value:
                yield bucket, part, part_value
        if count - done or value - done_value:
            yield None, count - done, value - done_value

    def scaled_to(self, total: float) -> WaitHistogram:
        """The same shape with another total; empty if that is not positive."""
        now = self.total
        return total / now * self if now > 0 and total > 0 else NO_LENGTHS

    def standing_for(self, total: float) -> WaitHistogram:
        """The same shape for so many waits, of which only these were recorded."""
        if not (0 < self.total < total):
            return self.scaled_to(total)
        return replace(self.scaled_to(total), weight=total / self.total)

    @property
    def time_ns(self) -> float:
        """How long these waits took together, by the middles of their buckets, in ns."""
        return sum(count * SCALE.middle_ns(bucket) for bucket, count in self.rows())

    def quantile(
        self, part: float, *, waits: float = 0.0, variance: float = 0.0
    ) -> Quantile | None:
        """The length that this part (0 to 1) of the waits do not exceed; None if it is not known.

        There are `waits`, some perhaps of unknown length: these may all be shorter or all longer.
        If their number is an estimate, `variance` is its variance: then the error is that of an
        order statistic, as it is where recorded waits stand for others. There must be one wait
        beyond the quantile at least among those that were recorded; the longest one, of part 1, is
        known of all of them.
        """
        rows = [(bucket, count) for bucket, count in self.rows() if count > 0]
        known = sum(count for _, count in rows)
        if known <= 0:
            return None
        waits, variance = max(waits, known), max(variance, known * (self.weight - 1))
        recorded = known * known / (known + variance)
        if part < 1 and (1 - part) * recorded < _LEAST_BEYOND:
            return None
        error = math.sqrt(part * (1 - part) * variance)
        unknown = waits - known if waits - known >= _LEAST_UNKNOWN * waits else 0.0
        rank = part * known
        lowest, _ = _at_rank(rows, part * (known + unknown) - unknown - error)
        bucket, _ = _at_rank(rows, rank)
        highest, is_inside = _at_rank(rows, part * (known + unknown) + error)
        least_ns, most_ns = float(SCALE.lower_ns(lowest)), float(SCALE.lower_ns(highest + 1))
        if most_ns > self.apart_ns > 0:
            least_ns, most_ns = max(0.0, least_ns - self.apart_ns), most_ns + self.apart_ns
        if unknown and not is_inside:
            most_ns = math.inf
        return Quantile(SCALE.middle_ns(bucket), least_ns, most_ns)


NO_LENGTHS: Final = WaitHistogram()
"""Of no wait the length is known."""


def _at_rank(rows: Sequence[tuple[int, float]], rank: float) -> tuple[int, bool]:
    """The bucket of the wait with this rank by length; whether there are so many waits."""
    seen = 0.0
    for bucket, count in rows:
        seen += count
        if seen >= rank - _ROUNDING * seen:
            return bucket, True
    return rows[-1][0], False
