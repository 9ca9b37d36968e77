"""Buckets of durations that are about as wide as they are long: log-linear, as Go's runtime's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLinear:
    """The limits of buckets, numbered from 0 on, as those of runtime.timeHistogram.

    Below 2**(least_bits - 1) ns, buckets are all of one width. From there on their limits double,
    and each of these ranges has 2**part_bits buckets (runtime/histogram.go, Go 1.19 to 1.27).
    """

    least_bits: int
    part_bits: int

    def lower_ns(self, bucket: int) -> int:
        """The least duration of a bucket, in nanoseconds; of the one after it, its limit."""
        parts = 1 << self.part_bits
        doubled, part = divmod(bucket, parts)
        if not doubled:
            return part << (self.least_bits - 1 - self.part_bits)
        return (parts + part) << (self.least_bits + doubled - 2 - self.part_bits)

    def middle_ns(self, bucket: int) -> float:
        """The middle of a bucket, in nanoseconds."""
        return (self.lower_ns(bucket) + self.lower_ns(bucket + 1)) / 2

    def bucket_of(self, ns: int) -> int:
        """The bucket of a duration of 0 or more."""
        doubled = max(0, ns.bit_length() - self.least_bits + 1)
        shift = max(self.least_bits, ns.bit_length()) - 1 - self.part_bits
        return (doubled << self.part_bits) + (ns >> shift) % (1 << self.part_bits)
