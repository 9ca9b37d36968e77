"""Lengths of waits by bucket: sums, differences, quantiles and their errors."""

from __future__ import annotations

import math
import random

import pytest

from ebpfprof.profile.wait_histogram import NO_LENGTHS, SCALE, WaitHistogram

MS = 1_000_000


def bounds(ns: int) -> tuple[int, int]:
    """The limits of the bucket of a length."""
    bucket = SCALE.bucket_of(ns)
    return SCALE.lower_ns(bucket), SCALE.lower_ns(bucket + 1)


def within(histogram: WaitHistogram, part: float, **of: float) -> tuple[float, float]:
    found = histogram.quantile(part, **of)
    assert found
    return found.least_ns, found.most_ns


def test_quantiles_of_all_waits_are_known_to_a_bucket() -> None:
    lengths = [MS] * 989 + [40 * MS] * 10 + [800 * MS]
    random.Random(1).shuffle(lengths)
    histogram = WaitHistogram.of(lengths)
    assert within(histogram, 0.5) == bounds(MS)
    assert within(histogram, 0.99) == bounds(40 * MS)
    assert within(histogram, 1.0) == bounds(800 * MS)


def test_a_percentile_needs_a_wait_beyond_it() -> None:
    assert WaitHistogram.of([MS] * 99).quantile(0.99) is None
    assert WaitHistogram.of([MS] * 100).quantile(0.99)
    assert WaitHistogram.of([MS]).quantile(0.5) is None
    assert WaitHistogram.of([MS] * 2).quantile(0.5)
    assert WaitHistogram.of([MS]).quantile(1.0)
    assert NO_LENGTHS.quantile(1.0) is None


def test_of_one_wait_in_eight_a_percentile_needs_a_recorded_one_beyond_it() -> None:
    def quantile(recorded: int) -> object:
        sampled = 8 * WaitHistogram.of([MS] * recorded)
        return sampled.quantile(0.99, variance=56.0 * recorded)

    assert quantile(99) is None
    assert quantile(101)


def test_a_value_without_events_has_no_length() -> None:
    assert list(WaitHistogram.of([MS]).divided(0, 5)) == [(None, 0, 5)]


def test_a_sum_has_the_waits_of_both_and_a_difference_what_was_added() -> None:
    before, more = WaitHistogram.of([MS, MS, 2 * MS]), WaitHistogram.of([MS, 9 * MS])
    after = before + more
    assert after == WaitHistogram.of([MS, MS, 2 * MS, MS, 9 * MS])
    assert after - before == more
    assert after - after == NO_LENGTHS
    assert before + NO_LENGTHS == NO_LENGTHS + before == before


def test_a_wait_that_went_on_counts_where_it_ended() -> None:
    first, then = WaitHistogram.of([MS]), WaitHistogram.of([9 * MS])
    assert first + (then - first) == then
    moved = then - first
    assert moved.total == 0
    assert within(moved, 1.0) == bounds(9 * MS)


def test_waits_of_unknown_length_may_be_shorter_or_longer_than_all() -> None:
    histogram = WaitHistogram.of([MS] * 60 + [10 * MS] * 40)
    assert within(histogram, 0.5, waits=110) == (bounds(MS)[0], bounds(MS)[1])
    assert within(histogram, 0.5, waits=130) == (bounds(MS)[0], bounds(10 * MS)[1])
    assert within(histogram, 1.0, waits=110)[1] == math.inf
    found = histogram.quantile(1.0, waits=110)
    assert found
    assert not found.is_known


@pytest.mark.parametrize("part", [0.5, 0.9, 0.99])
def test_the_reported_error_of_one_in_eight_holds_as_often_as_it_says(part: float) -> None:
    """Two waits of three at least within one standard error, of a long-tailed distribution."""
    numbers = random.Random(2)
    hits, rounds = 0, 200
    for _ in range(rounds):
        lengths = sorted(int(MS * numbers.paretovariate(1.2)) for _ in range(8000))
        actual = lengths[math.ceil(part * len(lengths)) - 1]
        recorded = [length for length in lengths if numbers.random() < 1 / 8]
        sampled = 8 * WaitHistogram.of(recorded)
        least_ns, most_ns = within(sampled, part, variance=56.0 * len(recorded))
        hits += least_ns <= actual < most_ns
    assert hits > 0.66 * rounds


def test_lengths_of_goroutine_samples_are_known_within_the_time_between_two() -> None:
    seen = WaitHistogram.counted({SCALE.bucket_of(800 * MS): 3}, apart_ns=30.0 * MS)
    low, high = bounds(800 * MS)
    assert within(seen, 1.0) == (low - 30 * MS, high + 30 * MS)
    assert within(seen, 1.0, waits=5) == (low - 30 * MS, math.inf)
    together = WaitHistogram.of([MS] * 200) + seen
    assert within(together, 0.5) == bounds(MS)  # samples see no waits as short as that
    assert within(together, 1.0) == within(seen, 1.0)


def test_a_scaled_histogram_has_the_same_shape() -> None:
    histogram = WaitHistogram.of([MS, MS, 9 * MS])
    scaled = histogram.scaled_to(30.0)
    assert scaled.total == pytest.approx(30)
    assert scaled.buckets == histogram.buckets
    assert histogram.scaled_to(0.0) == NO_LENGTHS.scaled_to(3.0) == NO_LENGTHS


def test_at_least_has_the_larger_number_of_each_bucket() -> None:
    earlier, later = WaitHistogram.of([MS, MS, 9 * MS]), WaitHistogram.of([MS, 3 * MS])
    assert later.at_least(earlier) == WaitHistogram.of([MS, MS, 3 * MS, 9 * MS])
    assert NO_LENGTHS.at_least(earlier) == earlier.at_least(NO_LENGTHS) == earlier


def test_without_a_known_error_a_quantile_has_a_dash() -> None:
    """Half of the waits are short and half are long: the median may be either."""
    halves = 8 * (WaitHistogram.of([MS] * 50) + WaitHistogram.of([80 * MS] * 50))
    found = halves.quantile(0.5, variance=56.0 * 100)
    assert found
    assert not found.is_known


def test_what_stands_for_others_has_the_error_of_a_sample() -> None:
    """Of 800 waits 100 were recorded: as if their number were an estimate of one in eight."""
    recorded = WaitHistogram.of([MS] * 50 + [9 * MS] * 50)
    lengths = recorded.standing_for(800)
    assert (lengths.total, lengths.weight) == (800, 8)
    found = lengths.quantile(0.5)
    assert found
    assert found == (8 * recorded).quantile(0.5, variance=56 * 100)
    assert found.least_ns <= MS < 9 * MS <= found.most_ns
    assert (8 * recorded).quantile(0.5) != found
    assert lengths.quantile(0.995) is None  # of a hundred
    assert recorded.standing_for(40) == 0.4 * recorded


def test_weights_stay_with_sums_and_differences() -> None:
    lengths = WaitHistogram.of([MS]).standing_for(8)
    assert (lengths + WaitHistogram.of([MS])).weight == 8
    assert (lengths - WaitHistogram.of([MS])).weight == 8
    assert lengths.at_least(WaitHistogram.of([9 * MS])).weight == 8
    assert (2 * lengths).weight == 8


def test_the_time_of_all_is_within_a_bucket() -> None:
    lengths_ns = [300, 5 * MS, 5 * MS, 70 * MS]
    assert WaitHistogram.of(lengths_ns).time_ns == pytest.approx(sum(lengths_ns), rel=0.07)
