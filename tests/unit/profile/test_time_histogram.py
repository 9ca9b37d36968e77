"""Buckets of durations, as Go's runtime has them."""

from __future__ import annotations

import pytest

from ebpfprof.profile.time_histogram import TimeHistogram

# Of Go 1.20 and later (runtime/histogram.go): 40 ranges of 4 buckets.
BITS = (9, 2)
BUCKETS = 160


def histogram(counts: dict[int, int], above: int = 0) -> TimeHistogram:
    return TimeHistogram(tuple(counts.get(at, 0) for at in range(BUCKETS)), *BITS, above)


def bucket_of(ns: int, least_bits: int, part_bits: int) -> int:
    """As timeHistogram.record counts it."""
    bits = max(ns.bit_length(), least_bits)
    bucket = 0 if ns.bit_length() < least_bits else bits - least_bits + 1
    width_bits = (least_bits if not bucket else bits) - 1 - part_bits
    return (bucket << part_bits) + (ns >> width_bits) % (1 << part_bits)


@pytest.mark.parametrize(("least_bits", "part_bits"), [BITS, (5, 4)])
@pytest.mark.parametrize("ns", [0, 1, 15, 16, 255, 256, 300, 511, 512, 12_345, 1 << 30])
def test_a_duration_is_within_the_limits_of_its_bucket(
    ns: int, least_bits: int, part_bits: int
) -> None:
    found = TimeHistogram((), least_bits, part_bits)
    bucket = bucket_of(ns, least_bits, part_bits)
    assert found.lower_ns(bucket) <= ns < found.lower_ns(bucket + 1)


def test_a_quantile_is_the_middle_of_its_bucket() -> None:
    found = histogram({0: 98, 20: 1, 40: 1})
    assert found.total == 100
    assert found.quantile_ns(0.5) == 32
    assert found.quantile_ns(0.99) == (found.lower_ns(20) + found.lower_ns(21)) / 2
    assert found.longest_ns() == (found.lower_ns(40) + found.lower_ns(41)) / 2


def test_durations_above_all_buckets_count() -> None:
    found = histogram({0: 1}, above=1)
    assert found.longest_ns() == found.lower_ns(BUCKETS) == 1 << 47
    assert histogram({}).longest_ns() == 0


def test_a_difference_has_what_was_added() -> None:
    added = histogram({3: 5, 9: 2}, above=4) - histogram({3: 1, 9: 2}, above=1)
    assert added == histogram({3: 4}, above=3)
    assert (histogram({3: 1}) - histogram({3: 2})).total == 0
