"""How those that spend CPU time of one process share the bound of --max-overhead."""

from __future__ import annotations

from ebpfprof.overhead.cost import Cost, Runs
from ebpfprof.overhead.process_budget import HALF, ProcessBudget, beside_a_trace

NOTHING = Cost()


def test_one_that_spends_alone_may_take_the_whole_bound() -> None:
    samples = ProcessBudget(2.0).lease(lambda: NOTHING, most=HALF)
    assert samples.share == 0.02
    assert samples.others_ns() == 0.0


def test_beside_others_it_takes_its_part_and_they_take_the_rest() -> None:
    budget = ProcessBudget(2.0)
    samples = budget.lease(lambda: Cost(samples=Runs(2, 300.0)), most=HALF)
    waits = budget.lease(lambda: Cost(Runs(10, 500.0), hit_ns=20.0))
    assert (samples.share, waits.share) == (0.01, 0.02)
    assert waits.others_ns() == 300.0
    assert samples.others_ns() == 500.0 + 10 * 20.0  # with the traps


def test_without_a_bound_no_lease_has_one() -> None:
    budget = ProcessBudget(0.0)
    leases = budget.lease(lambda: NOTHING, most=HALF), budget.lease(lambda: NOTHING)
    assert [lease.share for lease in leases] == [0.0, 0.0]


def test_a_closed_budget_asks_no_lease() -> None:
    def gone() -> Cost:
        raise AssertionError("its maps are closed")

    budget = ProcessBudget(1.0)
    budget.lease(gone)
    waits = budget.lease(lambda: NOTHING)
    budget.close()
    assert waits.others_ns() == 0.0


def test_costs_add_up_with_the_one_known_cost_of_a_trap() -> None:
    both = Cost(samples=Runs(3, 30.0)) + Cost(Runs(2, 20.0), hit_ns=5.0)
    assert both == Cost(Runs(2, 20.0), Runs(3, 30.0), 5.0)
    assert both.ns == 2 * 5.0 + 20.0 + 30.0


def test_profiles_and_a_trace_share_the_bound_in_halves() -> None:
    assert beside_a_trace(1.0) == 0.5
