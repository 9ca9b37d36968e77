"""Told errors beside Go's own block profile: few rounds of tests.tools.error_rounds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.tools.error_rounds import Reported, Row, one_round, shown, tallied

pytestmark = pytest.mark.alone

ROUNDS = 8
# Rounds of one stack are few, and stacks of one round depend on each other.
SIGMAS = 4


@pytest.mark.full
def test_intervals_hold_the_truth_as_often_as_they_say(tmp_path: Path) -> None:
    found = tallied(one_round(1.5, tmp_path) for _ in range(ROUNDS))
    for way in ("block", "wall"):
        of_way = [each for (each_way, _), each in found.items() if each_way == way]
        assert len(of_way) >= 5
        rounds, inside = sum(e.rounds for e in of_way), sum(e.inside for e in of_way)
        assert rounds >= 4 * ROUNDS
        least = 0.95 * rounds - SIGMAS * math.sqrt(0.95 * 0.05 * rounds)
        assert inside >= least, shown(found)


def test_the_truth_is_inside_within_two_errors_or_not() -> None:
    stack = (("sync.(*Mutex).Lock", 0), ("main.main", 1))
    assert Row("wall", stack, Reported(119, 100.0), 100).is_inside
    assert not Row("wall", stack, Reported(120, 100.0), 100).is_inside
    tally = tallied(iter([[Row("wall", stack, Reported(ns, 100.0), 100)] for ns in (119, 121)]))
    assert (tally["wall", stack].inside, tally["wall", stack].rounds) == (1, 2)


@pytest.mark.full
def test_few_samples_are_honest_about_goroutines_that_begin_together(tmp_path: Path) -> None:
    """As on a busy machine: all goroutines of a stack begin between the same two samples."""
    found = tallied(one_round(1.5, tmp_path, kinds=("wall",), wall_hz=8) for _ in range(6))
    ((_, long),) = [
        (stack, each) for (_, stack), each in found.items() if stack[1][0] == "main.waitLong"
    ]
    # A round counts if it has ten samples of the stack: about 12 are taken.
    assert long.rounds >= 4
    assert long.inside >= long.rounds - 1, shown(found)
