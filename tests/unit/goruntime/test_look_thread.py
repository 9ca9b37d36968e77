"""How far apart looks are."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime.look_thread import FIRST_LOOKS, LookRate


@pytest.mark.parametrize(
    ("looks", "cost_s", "interval_s"),
    [
        pytest.param(0, 0.0, 0.1, id="at first"),
        pytest.param(FIRST_LOOKS - 1, 0.001, 0.1, id="the last of the first ones"),
        pytest.param(FIRST_LOOKS, 0.001, 0.5, id="later"),
        pytest.param(0, 0.004, 0.2, id="at first, for more than the share"),
        pytest.param(FIRST_LOOKS, 0.02, 1.0, id="later, for more than the share"),
    ],
)
def test_looks_become_rarer_after_the_first_and_keep_to_their_share(
    looks: int, cost_s: float, interval_s: float
) -> None:
    assert LookRate(10, 2).interval_s(looks, cost_s, share=0.02) == pytest.approx(interval_s)
