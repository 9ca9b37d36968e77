"""The throughput of the benchmark of a saturated server."""

from __future__ import annotations

import pytest

from tests.bench.bench_saturated import Throughput


@pytest.mark.parametrize(
    ("begin_s", "end_s", "expected"),
    [
        pytest.param(10.0, 12.0, 150.0, id="whole slices"),
        pytest.param(10.5, 11.0, 100.0, id="a part of one"),
        pytest.param(10.5, 11.5, 150.0, id="parts of two"),
        pytest.param(9.0, 13.0, 75.0, id="longer than the load"),
        pytest.param(13.0, 14.0, 0.0, id="behind it"),
    ],
)
def test_a_slice_counts_with_the_part_that_lies_within(
    begin_s: float, end_s: float, expected: float
) -> None:
    load = Throughput([(10.0, 11.0, 100), (11.0, 12.0, 200)])
    assert load.between(begin_s, end_s) == pytest.approx(expected)
