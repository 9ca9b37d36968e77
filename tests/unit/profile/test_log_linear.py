"""Buckets of durations whose width grows with them."""

from __future__ import annotations

import pytest

from ebpfprof.profile.log_linear import LogLinear

GOS = LogLinear(9, 2)  # of Go 1.20 and later (runtime/histogram.go)
OURS = LogLinear(4, 3)


@pytest.mark.parametrize("scale", [GOS, OURS, LogLinear(5, 4)])
@pytest.mark.parametrize("ns", [0, 1, 7, 8, 15, 16, 255, 256, 300, 511, 512, 12_345, 1 << 30])
def test_a_duration_is_within_the_limits_of_its_bucket(scale: LogLinear, ns: int) -> None:
    bucket = scale.bucket_of(ns)
    assert scale.lower_ns(bucket) <= ns < scale.lower_ns(bucket + 1)


def test_buckets_follow_each_other() -> None:
    limits = [OURS.lower_ns(bucket) for bucket in range(496)]
    assert limits == sorted(set(limits))
    assert [OURS.bucket_of(limit) for limit in limits] == list(range(496))
    assert OURS.bucket_of((1 << 64) - 1) == 495


def test_a_bucket_is_at_most_twelve_percent_as_wide_as_its_middle() -> None:
    for bucket in range(OURS.bucket_of(100), 496):
        width = OURS.lower_ns(bucket + 1) - OURS.lower_ns(bucket)
        assert width <= 0.12 * OURS.middle_ns(bucket)
