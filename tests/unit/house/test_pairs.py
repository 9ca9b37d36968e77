"""The arithmetic of the benchmarks: a cost is found below noise that is many times larger."""

import random
from itertools import islice

import pytest

from tests.bench.pairs import (
    Estimate,
    Pair,
    in_pairs,
    schedule,
    times_bare,
)


def rounds(cost: float, count: int, seed: int) -> list[Pair]:
    """Rounds of 1,000 whose machine drifts by 10 % and is disturbed, every second one with cost."""
    chance = random.Random(seed)
    speed, values = 1.0, []
    for number in range(2 * count + 1):
        speed = min(max(speed + chance.gauss(0, 0.005), 0.9), 1.1)
        disturbed = 1 + abs(chance.gauss(0, 0.03))
        took = 1000 * speed * disturbed * (1 + cost * (number % 2))
        values.append(took)
    return in_pairs(values[::2], values[1::2])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cost", [0.0, 0.02, 0.1])
def test_the_cost_is_found_below_the_noise(cost: float, seed: int) -> None:
    found = times_bare(rounds(cost, 150, seed))
    assert found.value == pytest.approx(1 + cost, abs=0.02)
    assert found.low <= found.value <= found.high
    assert found.high - found.low < 0.05


def test_the_interval_nearly_always_contains_the_true_cost() -> None:
    held = 0
    for seed in range(100):
        found = times_bare(rounds(0.02, 40, seed))
        held += found.low <= 1.02 <= found.high
    assert held >= 85


def test_more_rounds_narrow_the_interval() -> None:
    few, many = (times_bare(rounds(0, n, 3)) for n in (10, 400))
    assert many.high - many.low < (few.high - few.low) / 2


def test_the_estimate_is_deterministic() -> None:
    assert times_bare(rounds(0.02, 20, 1)) == times_bare(rounds(0.02, 20, 1))


def test_rare_outliers_do_not_count() -> None:
    pairs = [Pair(110, 90, 110)] * 5 + [Pair(500, 100, 100), Pair(110, 900, 900)]
    assert times_bare(pairs).value == pytest.approx(1.1)


def test_a_round_is_compared_with_its_neighbours() -> None:
    assert in_pairs([1, 3, 5], [10, 20]) == [Pair(10, 1, 3), Pair(20, 3, 5)]
    with pytest.raises(ValueError, match="2 bare rounds"):
        in_pairs([1, 2], [3, 4])


def test_the_schedule_has_each_arm_once_per_turn_in_random_order() -> None:
    turns = list(islice(schedule("abcd", random.Random(1)), 400))
    by_turn = {tuple(turns[start : start + 4]) for start in range(0, 400, 4)}
    assert all(sorted(turn) == list("abcd") for turn in by_turn)
    assert len(by_turn) > 10


def test_an_estimate_shows_its_interval() -> None:
    assert str(Estimate(1.0123, 0.996, 1.02)) == "1.012 [0.996, 1.020]"
    assert str(Estimate(2.5, 2.444, 2.61)) == "2.50 [2.44, 2.61]"
    assert str(Estimate(1234.56, 900, 1500)) == "1,234.6 [900.0, 1,500.0]"
