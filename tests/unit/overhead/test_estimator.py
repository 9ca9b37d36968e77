"""Errors of what was recorded in windows."""

from __future__ import annotations

import pytest

from ebpfprof.overhead.estimator import of_differences

# Of Student's distribution, two-sided, 95 %, by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 19: 2.093, 99: 1.984}
NORMAL = 1.96


@pytest.mark.parametrize("freedom", STUDENT)
def test_few_windows_widen_an_interval_as_students_distribution_does(freedom: int) -> None:
    windows = freedom + 1
    of_few = windows / freedom
    expected = of_few * (STUDENT[freedom] / NORMAL) ** 2
    assert (of_differences(windows) / expected) ** 0.5 == pytest.approx(1, abs=0.02)
