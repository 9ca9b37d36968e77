"""The scheduler, driven with made-up loads."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebpfprof.agent.costs import FIRST, OPENING_S, Costs
from ebpfprof.agent.scheduler import BUDGET, PLACES, Candidate, Key, TurnScheduler


def candidate(number: int, busy: float = 1.0, cost: float = 0.01, age_s: float = 100) -> Candidate:
    return Candidate((number, 1), busy, age_s, cost)


def numbers(keys: tuple[Key, ...]) -> list[int]:
    return sorted(pid for pid, _ in keys)


COSTS = st.floats(0.0001, 0.5)
LOADS = st.lists(st.tuples(st.floats(0, 8), COSTS, st.floats(0, 1e6)), min_size=1, max_size=25)


@settings(deadline=None, max_examples=60)
@given(LOADS, st.floats(0.001, 0.5), st.integers(1, 12))
def test_costs_stay_within_the_budget_and_none_starves(
    loads: list[tuple[float, float, float]], income: float, places: int
) -> None:
    found = [candidate(i, busy, cost, age) for i, (busy, cost, age) in enumerate(loads)]
    cost_of = {each.key: each.cost for each in found}
    bound = sum(1 + math.ceil(each.cost / income) for each in found)
    scheduler = TurnScheduler()
    spent = total = 0.0
    waited = dict.fromkeys(cost_of, 0)
    for number in range(1, 2 * bound + 4):
        plan = scheduler.plan(found, income=income, places=places, spent=spent)
        assert len(plan.chosen) <= places
        assert {*plan.chosen} | plan.waiting.keys() == cost_of.keys()
        assert not {*plan.chosen} & plan.waiting.keys()
        spent = sum(cost_of[key] for key in plan.chosen)
        total += spent
        # Within the advance, and one process that costs more than there is.
        assert total <= (number + 2) * income + max(cost_of.values()) + 1e-6
        for key in cost_of:
            waited[key] = 0 if key in plan.chosen else waited[key] + 1
            assert waited[key] <= bound


@given(LOADS, st.integers(1, 10))
def test_the_same_loads_give_the_same_plans(
    loads: list[tuple[float, float, float]], places: int
) -> None:
    found = [candidate(i, busy, cost, age) for i, (busy, cost, age) in enumerate(loads)]
    one, other = TurnScheduler(), TurnScheduler()
    for _ in range(5):
        first = one.plan(found, income=0.1, places=places, spent=0.05)
        assert first == other.plan(list(reversed(found)), income=0.1, places=places, spent=0.05)


def test_all_are_recorded_where_the_budget_is_enough() -> None:
    found = [candidate(number) for number in range(10)]
    scheduler = TurnScheduler()
    for _ in range(5):
        plan = scheduler.plan(found, income=0.1, places=10, spent=0.1)
        assert numbers(plan.chosen) == list(range(10))
        assert plan.waiting == {}


def test_the_busiest_and_the_newest_come_first() -> None:
    found = [candidate(number, busy=0.1) for number in range(20)]
    scheduler = TurnScheduler()
    scheduler.plan(found, income=0.02, places=20, spent=0)
    busiest, newest = candidate(30, busy=5), candidate(31, busy=0, age_s=1)
    seen = [
        numbers(
            scheduler.plan([*found, busiest, newest], income=0.04, places=20, spent=0.04).chosen
        )
        for _ in range(6)
    ]
    assert all(30 in each for each in seen)
    assert 31 in seen[0]


@pytest.mark.parametrize(("busy", "second"), [(1.1, 1), (1.5, 2)])
def test_a_process_that_is_hardly_busier_does_not_oust_another(busy: float, second: int) -> None:
    scheduler = TurnScheduler()
    scheduler.plan([candidate(1)], income=1, places=1)
    found = [candidate(0, busy=0.1), candidate(1, busy=1.0), candidate(2, busy=busy)]
    assert numbers(scheduler.plan(found, income=1, places=2).chosen) == [0, second]


def test_waiting_processes_get_a_reason() -> None:
    found = [candidate(1, busy=2), candidate(2, busy=1), candidate(3, busy=0)]
    plan = TurnScheduler().plan(found, income=1, places=2)
    assert numbers(plan.chosen) == [1, 2]
    assert plan.waiting == {(3, 1): PLACES}
    plan = TurnScheduler().plan(found, income=0.008, places=3)
    assert list(plan.waiting.values()) == [BUDGET, BUDGET]


def test_one_that_costs_more_than_there_is_has_its_turn_alone() -> None:
    scheduler = TurnScheduler(saved=0.0)
    found = [candidate(1, cost=0.05), candidate(2, cost=0.001)]
    seen, spent = [], 0.0
    for _ in range(14):
        plan = scheduler.plan(found, income=0.01, places=9, spent=spent)
        spent = sum(each.cost for each in found if each.key in plan.chosen)
        seen.append(numbers(plan.chosen))
    assert [1] in seen
    assert seen[seen.index([1]) + 1 :][:4] == [[]] * 4  # the debt is repaid
    assert [2] in seen


def test_a_short_round_costs_and_earns_as_much_less() -> None:
    scheduler = TurnScheduler(saved=0.0)
    scheduler.plan([], income=0.01, places=9, spent=0.09, lasted=0.25)
    assert scheduler.saved == pytest.approx(0.25 * (0.01 - 0.09))


def test_those_that_are_to_be_kept_come_first() -> None:
    found = [candidate(1, busy=9, age_s=1), candidate(2), candidate(3, busy=1)]
    scheduler = TurnScheduler()
    assert numbers(scheduler.plan(found, income=1, places=2).chosen) == [1, 2]
    kept = scheduler.plan(found, income=1, places=2, kept=[(2, 1), (3, 1)])
    assert numbers(kept.chosen) == [2, 3]


def test_newcomers_are_admitted_while_there_is_room() -> None:
    scheduler = TurnScheduler(saved=0.0)
    scheduler.plan([candidate(1)], income=0.035, places=3)
    assert scheduler.admit(candidate(2)) == ""
    assert scheduler.admit(candidate(3, cost=0.02)) == BUDGET
    assert scheduler.admit(candidate(4)) == ""
    assert scheduler.admit(candidate(5, cost=0.001)) == PLACES


def test_the_first_round_has_an_advance_and_nothing_else_is_saved_for_long() -> None:
    found = [candidate(number) for number in range(9)]
    scheduler = TurnScheduler()
    assert len(scheduler.plan(found, income=0.01, places=9).chosen) == 2
    for _ in range(9):
        scheduler.plan([], income=0.01, places=9)
    assert len(scheduler.plan(found, income=0.01, places=9).chosen) == 2


def test_one_that_was_recorded_is_not_a_newcomer() -> None:
    was, waits, busy = candidate(0, age_s=1), candidate(1, age_s=1000), candidate(2, 9, age_s=1000)
    scheduler = TurnScheduler()
    assert numbers(scheduler.plan([was, waits], income=1, places=1).chosen) == [0]
    found = [was, waits, busy, candidate(3, busy=0, age_s=50)]
    assert numbers(scheduler.plan(found, income=1, places=3).chosen) == [1, 2, 3]


def test_of_those_that_waited_more_than_one_has_its_turn() -> None:
    found = [candidate(number, busy=number) for number in range(6)]
    scheduler = TurnScheduler()
    scheduler.plan(found, income=1, places=6)
    assert numbers(scheduler.plan(found, income=1, places=4).chosen) == [0, 1, 4, 5]
    assert numbers(scheduler.plan(found, income=1, places=4).chosen) == [2, 3, 4, 5]


def test_processes_that_are_gone_are_forgotten() -> None:
    scheduler = TurnScheduler()
    for number in range(5):
        scheduler.plan([candidate(number)], income=1, places=1)
        scheduler.admit(candidate(100 + number))
    assert {*scheduler._standings} == {(4, 1), (104, 1)}


@pytest.mark.parametrize("own", [0.0, 0.02])
def test_costs_are_learned(own: float) -> None:
    costs = Costs()
    assert costs.of((1, 1)) == pytest.approx(FIRST)
    for _ in range(40):
        spent = costs.note({(1, 1): 0.01, (2, 1): 0.03}, own)
    assert spent == pytest.approx(0.04 + own)
    assert costs.of((1, 1)) == pytest.approx(0.01 + own / 2)
    assert costs.of((3, 1)) == pytest.approx(0.02 + own / 2)
    assert costs.of((1, 1), 10) == pytest.approx(costs.of((1, 1)) + OPENING_S / 10)
    costs.note({(1, 1): 0.01, (2, 1): 0.03}, own + 0.1, apart=0.1)  # what opening cost is no rule
    assert costs.of((1, 1)) == pytest.approx(0.01 + own / 2)
    costs.note({(1, 1): 0.03, (2, 1): 0.03}, own)
    assert costs.of((1, 1)) == pytest.approx(0.02 + own / 2)  # what was before counts, too
    costs.forget({(2, 1): None})
    assert costs.of((1, 1)) == pytest.approx(0.03 + own / 2)
