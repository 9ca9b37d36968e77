"""Buckets of durations, as Go's runtime has them."""

from __future__ import annotations

from ebpfprof.profile.time_histogram import TimeHistogram

# Of Go 1.20 and later (runtime/histogram.go): 40 ranges of 4 buckets.
BITS = (9, 2)
BUCKETS = 160


def histogram(counts: dict[int, int], above: int = 0) -> TimeHistogram:
    return TimeHistogram(tuple(counts.get(at, 0) for at in range(BUCKETS)), *BITS, above)


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
