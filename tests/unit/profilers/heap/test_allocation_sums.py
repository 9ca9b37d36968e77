"""Estimates from windows and samples: right on average, with an error that is reported honestly.

Made-up programs allocate by chance; their true counts are known.
"""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from ebpfprof.profilers.heap.allocation_sums import LARGE, AllocationSums, merged, size_class
from ebpfprof.profilers.heap.gate_program import chance
from ebpfprof.profilers.heap.gate_tables import AllocatingStack

A, B, C = (AllocatingStack((number,), 64) for number in (1, 2, 3))
BIG = AllocatingStack((4,), 1 << 20)
OTHER = AllocatingStack((5,), 512)


def test_what_was_counted_whole_is_exact() -> None:
    sums = AllocationSums(1)
    sums.add_whole(Counter({A: 3, BIG: 2}), 1000)
    sums.add_whole(Counter({A: 1}), 1000)
    found = sums.estimates({})
    assert found == {A: (4.0, 0.0), BIG: (2.0, 0.0)}
    assert sums.share == 1


def test_a_sample_stands_for_as_many_as_it_was_drawn_from() -> None:
    sums = AllocationSums(64)
    sums.add_whole(Counter({A: 100}), 1000)
    part = 1 - math.exp(-1)
    objects, variance = sums.estimates({})[A]
    assert objects == pytest.approx(100 / part)
    assert variance == pytest.approx(100 * (1 - part) / part**2)


def test_large_objects_are_never_left_out() -> None:
    assert chance(32768, 1 << 30) < 0.001
    assert chance(32769, 1 << 30) == 1
    assert size_class(32768) == 32768
    assert size_class(1 << 20) == LARGE


def test_windows_share_out_what_the_counters_tell() -> None:
    sums = AllocationSums(1)
    sums.add_whole(Counter({A: 10}), 1000)
    sums.add_window(Counter({A: 30, B: 10}), 1000, 10_000)
    sums.add_window(Counter({A: 30, B: 10}), 1000, 10_000)
    found = sums.estimates({64: 64 * 1000.0, 512: 512 * 7.0})
    assert found[A].objects == pytest.approx(10 + 750)
    assert found[B].objects == pytest.approx(250)
    assert sums.unseen({64: 64000.0, 512: 512 * 7.0}) == 512 * 7
    assert sums.share == pytest.approx(3000 / 21000)


def test_all_that_no_window_saw_may_be_of_any_stack_of_its_size() -> None:
    """The budget was used up before there was a window."""
    sums = AllocationSums(1)
    sums.add_whole(Counter({A: 10, B: 30, OTHER: 5}), 1000)
    found = sums.estimates({64: 64 * 500.0})
    assert found[A] == (10.0, 500.0**2)
    assert found[B] == (30.0, 500.0**2)
    assert found[OTHER] == (5.0, 0.0)
    sums.add_window(Counter({A: 1}), 10, 100)
    assert sums.estimates({64: 64 * 500.0})[B] == (30.0, 0.0)


def test_a_single_window_has_no_error_to_tell() -> None:
    sums = AllocationSums(1)
    sums.add_window(Counter({A: 30}), 1000, 10_000)
    assert math.isinf(sums.estimates({64: 6400.0})[A].variance)


def simulated(
    seed: int, rate: int
) -> tuple[AllocationSums, dict[int, float], Counter[AllocatingStack]]:
    """A program in bursts of 40 pieces: windows see one piece in five."""
    chosen = random.Random(seed)
    sums, truth, missed = AllocationSums(rate), Counter[AllocatingStack](), Counter[int]()
    for _ in range(40):
        busy = chosen.choice((1, 1, 1, 6))
        seen = chosen.randrange(5)
        for piece in range(5):
            leaning = chosen.uniform(0.3, 0.7)  # which stack allocates more changes with time
            of_piece = Counter[AllocatingStack]()
            for _ in range(busy * 40):
                of_piece[A if chosen.random() < leaning else B] += 1
            of_piece[C] += chosen.random() < 0.3
            of_piece[OTHER] += busy
            truth.update(of_piece)
            for stack, count in of_piece.items():
                missed[stack.size_bytes] += count * stack.size_bytes
            if piece == seen:
                sampled = Counter(
                    {
                        stack: sum(
                            chosen.random() < chance(stack.size_bytes, rate) for _ in range(count)
                        )
                        for stack, count in of_piece.items()
                    }
                )
                sums.add_window(+sampled, 1000, 5000)
    return sums, {kind: float(used) for kind, used in missed.items()}, truth


@pytest.mark.parametrize("rate", [1, 256])
def test_the_reported_error_is_honest(rate: int) -> None:
    """Over many seeds, about 95 % lie within two reported errors; these are not too large."""
    squares: dict[AllocatingStack, list[float]] = {A: [], B: [], C: []}
    deviations: dict[AllocatingStack, list[float]] = {A: [], B: [], C: []}
    for seed in range(150):
        sums, missed, truth = simulated(seed, rate)
        found = sums.estimates(missed)
        for stack in (A, B, C):
            if stack not in found:
                continue
            objects, variance = found[stack]
            deviation = (objects - truth[stack]) / math.sqrt(variance)
            squares[stack].append(deviation**2)
            deviations[stack].append((objects - truth[stack]) / truth[stack])
    for stack in (A, B):
        mean = sum(squares[stack]) / len(squares[stack])
        assert 0.35 < mean < 1.4, (stack, mean)
        within = sum(square < 4 for square in squares[stack]) / len(squares[stack])
        assert within > 0.9, (stack, within)
        bias = sum(deviations[stack]) / len(deviations[stack])
        assert abs(bias) < 0.02
    within = sum(each < 4 for each in squares[C]) / len(squares[C])
    assert within > 0.85, within


def test_other_sizes_of_a_window_show_nothing_of_these() -> None:
    sums, missed, truth = simulated(1, 1)
    found = sums.estimates(missed)
    assert found[OTHER].objects == pytest.approx(truth[OTHER])  # alone in its class


def test_stacks_that_look_the_same_have_the_error_of_their_sum() -> None:
    """Half of A's objects pass by another gate while the collector runs: no error of A's."""
    apart, one = AllocationSums(1), AllocationSums(1)
    marking = AllocatingStack((9,), 64)
    for part in (0, 40, 100, 20, 0, 70):
        counts = Counter({A: 100 - part, marking: part, B: 50})
        apart.add_window(counts, 1000, 10_000)
        alike = merged(counts, lambda stack: A if stack == marking else stack)
        one.add_window(alike, 1000, 10_000)
    missed = {64: 64.0 * 9000}
    of_each, of_both = apart.estimates(missed), one.estimates(missed)
    assert math.sqrt(of_each[marking].variance) > 0.2 * of_each[marking].objects
    assert of_both[A].objects == pytest.approx(of_each[A].objects + of_each[marking].objects)
    assert of_both[A].variance == pytest.approx(0, abs=1e-3)
    assert marking not in of_both


def test_a_copy_is_another_one() -> None:
    sums = AllocationSums(1)
    sums.add_whole(Counter({A: 1}), 1000)
    sums.add_window(Counter({A: 1, B: 2}), 1000, 2000)
    before = sums.copy()
    sums.add_whole(Counter({A: 1}), 1000)
    sums.add_window(Counter({A: 1, C: 2}), 1000, 2000)
    assert before.estimates({}).keys() == {A, B}
    assert before.estimates({})[A].objects == 1 + 2
    assert (before.windows, before.share) == (1, 2000 / 3000)


def test_what_it_keeps_does_not_grow_with_windows() -> None:
    sums = AllocationSums(1)
    for _ in range(1000):
        sums.add_window(Counter({A: 3, B: 1}), 1000, 10_000)
    assert len(sums.stacks) == 2
    assert len(sums.classes) == 1
    found = sums.estimates({64: 64 * 4000.0})
    assert found[A].objects == pytest.approx(3000)
    assert math.sqrt(found[A].variance) < 0.01
