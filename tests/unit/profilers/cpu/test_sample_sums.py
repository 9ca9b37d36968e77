"""Samples between two moments, whatever came out of the kernel's table before and since."""

from __future__ import annotations

from collections import Counter

from ebpfprof.profilers.cpu.sample_table import CpuStack, SampleSums
from ebpfprof.profilers.cpu.unwinder import Ending

A, B = (CpuStack((), (pc,), Ending.WHOLE) for pc in (1, 2))


def test_a_difference_has_what_came_between_two_moments() -> None:
    earlier = SampleSums(Counter({A: 2}))
    earlier.taken_out += Counter({A: 5, B: 1})  # emptied: two of A were there before
    later = SampleSums(Counter({A: 1, B: 3}))
    assert later - earlier == Counter({A: 4, B: 4})


def test_what_comes_after_the_later_moment_is_not_in_it() -> None:
    earlier, later = SampleSums(Counter()), SampleSums(Counter({A: 3}))
    for each in (earlier, later):  # three were in the table then, four came since
        each.taken_out += Counter({A: 7})
    assert later - earlier == Counter({A: 3})


def test_a_moment_minus_itself_is_nothing() -> None:
    moment = SampleSums(Counter({A: 3}))
    moment.taken_out += Counter({A: 9, B: 1})
    assert moment - moment == Counter()
