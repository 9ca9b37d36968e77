"""How often a recording looks at what it has cost."""

from __future__ import annotations

from typing import cast
from unittest import mock

import pytest

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.overhead.cost import Cost, Runs
from ebpfprof.overhead.process_budget import ProcessBudget
from ebpfprof.profilers.bounded_probes import BoundedProbes
from ebpfprof.profilers.spending import Spending

S = 1_000_000_000


@pytest.mark.parametrize(("elapsed_s", "tick_s"), [(0, 0.1), (1, 0.1), (40, 2.0), (1000, 30.0)])
def test_a_quiet_process_is_checked_less_often_the_longer_it_is_recorded(
    elapsed_s: int, tick_s: float
) -> None:
    probes, go = mock.MagicMock(), mock.MagicMock()
    probes.runs.return_value = Runs()
    probes.hit_ns, go.target.cpu_ns.return_value = 0.0, 1
    lease = ProcessBudget(1.0).lease(Cost)
    spending = Spending(cast("BoundedProbes", probes), 0, cast("GoTarget", go), lease)
    spending.budget.update(0.0, 0.0, elapsed_s * S)
    assert spending.tick_s(1, 0.0) == pytest.approx(tick_s)
