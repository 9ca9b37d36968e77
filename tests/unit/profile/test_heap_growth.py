"""Which stacks hold more and more memory, from sample to sample."""

from __future__ import annotations

import math
import random

import pytest

from ebpfprof.profile.growth import Growing, Growth
from ebpfprof.profile.heap_growth import in_use
from ebpfprof.profile.model import Frame, Label, Location, Sample
from ebpfprof.profilers.registry import kind_named

KIB = 1 << 10
MINUTE_NS = 60_000_000_000
LEAK = (Location(1, None, (Frame("main.leak", "/src/leak.go", 7),)),)
OTHER = (Location(2, None, (Frame("main.other", "/src/other.go", 9),)),)


def sample(stack: tuple[Location, ...], objects: int, size: int = KIB) -> Sample:
    values = (objects, objects * size, objects, objects * size)
    return Sample(stack, values, (Label("bytes", size),))


def growing(*samples: list[Sample], period: int = 1) -> list[Growing[tuple[Location, ...]]]:
    """What the last of several samples tells, a minute apart."""
    growth = Growth[tuple[Location, ...]]()
    found: list[Growing[tuple[Location, ...]]] = []
    for number, some in enumerate(samples):
        profile = kind_named("heap").make_profile(some, (), period=period, time_ns=0, duration_ns=0)
        found = growth.add(in_use(profile), number * MINUTE_NS)
    return found


def test_a_stack_that_grows_is_reported_with_its_rate() -> None:
    (found,) = growing(*([sample(LEAK, n), sample(OTHER, 7)] for n in (10, 20, 30)))
    assert found == Growing(LEAK, 30 * KIB, 20 * KIB, 10 * KIB, 0.0)


def test_one_that_came_later_began_with_nothing() -> None:
    (found,) = growing([], [sample(LEAK, 5)], [sample(LEAK, 6)])
    assert (found.now, found.grown, found.per_minute) == (6 * KIB, 6 * KIB, 3 * KIB)


@pytest.mark.parametrize(
    "numbers",
    [(10, 20), (10, 10, 10), (30, 20, 10), (10, 90, 10), (10, 50, 20, 60, 10, 55), (5, 9, 0, 0)],
)
def test_what_falls_or_stays_does_not_grow(numbers: tuple[int, ...]) -> None:
    assert growing(*([sample(LEAK, n)] if n else [] for n in numbers)) == []


def test_a_leak_below_what_comes_and_goes_is_found() -> None:
    numbers = [10 + 5 * number + (number % 2) * 12 for number in range(12)]
    (found,) = growing(*([sample(LEAK, n)] for n in numbers))
    assert found.grown == (numbers[-1] - numbers[0]) * KIB


def test_sizes_of_one_stack_count_together() -> None:
    (found,) = growing(*([sample(LEAK, n), sample(LEAK, n, 2 * KIB)] for n in (1, 2, 3)))
    assert found.now == 9 * KIB


def drawn(chance: random.Random, number: int, size: int, period: int) -> int:
    """The estimate of how many objects there are, each of which is sampled on its own."""
    part = 1 - math.exp(-size / period)
    return int(sum(chance.random() < part for _ in range(number)) / part)


def test_chance_is_hardly_ever_taken_for_growth() -> None:
    """Memory in use stays the same; all of it is sampled again at each sample."""
    chance, period, size, wrong = random.Random(7), 64 * KIB, 4 * KIB, 0
    for _ in range(300):
        draws = ([sample(LEAK, drawn(chance, 400, size, period), size)] for _ in range(4))
        wrong += bool(growing(*draws, period=period))
    assert wrong <= 3


def test_a_program_that_fills_what_it_keeps_does_not_leak() -> None:
    """From nothing to as many as it keeps; after that, chance alone makes them more or fewer."""
    chance, period, size, wrong = random.Random(13), 64 * KIB, 4 * KIB, 0
    for _ in range(300):
        numbers = (0, *(400,) * 5)
        draws = ([sample(LEAK, drawn(chance, n, size, period), size)] for n in numbers)
        wrong += bool(growing(*draws, period=period))
    assert wrong <= 3


def test_the_reported_error_is_that_of_the_estimate() -> None:
    """Of growth by 1,000 objects: nine in ten within two standard errors, not all within one."""
    chance, period, size = random.Random(11), 64 * KIB, 4 * KIB
    within = {1: 0, 2: 0}
    rounds = 200
    for _ in range(rounds):
        draws = ([sample(LEAK, drawn(chance, n, size, period), size)] for n in (500, 1000, 1500))
        (found,) = growing(*draws, period=period)
        for errors in within:
            within[errors] += abs(found.grown - 1000 * size) <= errors * found.error
    assert within[2] >= 0.9 * rounds
    assert 0.5 * rounds < within[1] < 0.85 * rounds
