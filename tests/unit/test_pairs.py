"""The arithmetic of the CPU benchmark: a cost is found below noise that is many times larger."""

import random
from itertools import islice

import pytest

from tests.bench.pairs import (
    Estimate,
    Pair,
    in_pairs,
    schedule,
    slower_at_best,
    slower_in_the_middle,
)


def rounds(cost: float, count: int, seed: int, *, rate: bool = False) -> list[Pair]:
    """Rounds of 1,000 whose machine drifts by 10 % and is disturbed, every second one with cost."""
    chance = random.Random(seed)
    speed, values = 1.0, []
    for number in range(2 * count + 1):
        speed = min(max(speed + chance.gauss(0, 0.005), 0.9), 1.1)
        disturbed = 1 + abs(chance.gauss(0, 0.03))
        took = 1000 * speed * disturbed * (1 + cost * (number % 2))
        values.append(1e6 / took if rate else took)
    return in_pairs(values[::2], values[1::2])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cost", [0.0, 0.02, 0.1])
def test_the_cost_is_found_below_the_noise(cost: float, seed: int) -> None:
    for found in (
        slower_at_best(rounds(cost, 150, seed)),
        slower_in_the_middle(rounds(cost, 150, seed, rate=True)),
    ):
        assert found.value == pytest.approx(cost, abs=0.02)
        assert found.low <= found.value <= found.high
        assert found.high - found.low < 0.05


def test_the_interval_holds_what_is_true_nearly_always() -> None:
    held = 0
    for seed in range(100):
        found = slower_in_the_middle(rounds(0.02, 40, seed, rate=True))
        held += found.low <= 0.02 <= found.high
    assert held >= 85


def test_more_rounds_make_it_surer() -> None:
    few, many = (slower_in_the_middle(rounds(0, n, 3, rate=True)) for n in (10, 400))
    assert many.high - many.low < (few.high - few.low) / 2


def test_it_is_the_same_every_time() -> None:
    assert slower_at_best(rounds(0.02, 20, 1)) == slower_at_best(rounds(0.02, 20, 1))


def test_quick_rounds_count_and_slow_ones_do_not() -> None:
    pairs = [Pair(110, 100, 100)] * 10 + [Pair(500, 100, 100), Pair(110, 900, 900)]
    assert slower_at_best(pairs).value == pytest.approx(0.1)
    assert slower_in_the_middle([Pair(80, 90, 110)] * 2 + [Pair(1, 90, 110)]).value == 0.25


def test_rounds_that_are_disturbed_most_of_the_time_are_not_compared_with_means() -> None:
    chance = random.Random(1)
    values = [100.0 if chance.random() < 0.2 else 200.0 for _ in range(401)]
    assert slower_at_best(in_pairs(values[::2], values[1::2])).value == 0


def test_a_round_is_compared_with_those_beside_it() -> None:
    assert in_pairs([1, 3, 5], [10, 20]) == [Pair(10, 1, 3), Pair(20, 3, 5)]
    with pytest.raises(ValueError, match="2 bare rounds"):
        in_pairs([1, 2], [3, 4])


def test_each_has_its_turn_in_an_order_that_changes() -> None:
    turns = list(islice(schedule("abcd", random.Random(1)), 400))
    by_turn = {tuple(turns[start : start + 4]) for start in range(0, 400, 4)}
    assert all(sorted(turn) == list("abcd") for turn in by_turn)
    assert len(by_turn) > 10


def test_an_estimate_shows_its_interval() -> None:
    assert str(Estimate(0.0123, -0.004, 0.02)) == "+1.2% [-0.4%, +2.0%]"
