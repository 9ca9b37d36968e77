"""The distinct numbers of an array are those of np.unique."""

from __future__ import annotations

import numpy as np
import pytest

from ebpfprof.goruntime.distinct import distinct


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_each_number_is_there_once(count: int) -> None:
    numbers = np.random.default_rng(count).integers(0, 300, count, np.uint64)
    found = distinct(numbers)
    assert found.dtype == numbers.dtype
    assert found.tolist() == np.unique(numbers).tolist()
