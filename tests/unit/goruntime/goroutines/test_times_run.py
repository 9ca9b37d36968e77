"""How often goroutines ran, out of any bytes that a target may have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.goruntime.goroutines.times_run import TimesRun
from ebpfprof.goruntime.process import GoTarget
from symbolizer import GoBinary, GoTableError
from symbolizer.codeanalysis.cgo_callback import cgo_callback
from symbolizer.codeanalysis.globals import scheduling_latencies
from symbolizer.codeanalysis.park_sites import probe_sites
from tests.fuzz.ways.made_up import made_up_process
from tests.images.pages import Part
from tests.images.target import SavedTarget, Shown
from tests.programs import saved

BIAS = 0x1000


@cache
def program() -> GoTarget:
    binary = saved.binary("frames")
    target = SavedTarget(Shown("/usr/bin/frames"))
    return GoTarget(
        target, "", binary, BIAS, (), probe_sites(binary), cgo_callback(binary), None, None
    )


def process(*parts: Part) -> GoTarget:
    return made_up_process(program(), parts)


def address() -> int:
    found = scheduling_latencies(program().binary)
    assert found is not None
    return found + BIAS


def size() -> int:
    return program().binary.layout.size("timeHistogram")


def histogram(counts: Iterable[int]) -> bytes:
    return np.array([*counts], np.uint64).tobytes().ljust(size(), b"\0")


def test_all_counters_are_added_up_those_of_odd_times_too() -> None:
    counts = range(1, size() // 8 + 1)  # the last two are of times too short and too long
    run = TimesRun(process((address(), histogram(counts))))
    assert run.count() == sum(counts)


def test_a_program_that_has_ended_counts_nothing() -> None:
    assert TimesRun(process()).count() is None


def test_counters_that_can_be_read_in_part_count_nothing() -> None:
    assert TimesRun(process((address(), histogram([5])[: size() // 2]))).count() is None


def test_a_program_whose_counters_are_not_found_counts_nothing() -> None:
    def none(_: GoBinary) -> int | None:
        return None

    def unknown(_: GoBinary) -> int | None:
        raise GoTableError("corrupt")

    for find in (none, unknown):
        assert TimesRun(process((address(), histogram([5]))), find).count() is None


def test_the_count_is_that_of_the_moment() -> None:
    target = process((address(), histogram([5])))
    assert TimesRun(target).count() == TimesRun(target).count() == 5
    moved = replace(target, load_bias=2 * BIAS)
    assert TimesRun(moved).count() is None


@given(st.binary(max_size=size() + 8))
def test_any_bytes_are_a_count(data: bytes) -> None:
    count = TimesRun(process((address(), data))).count()
    assert (count is None) == (len(data) < size())
    assert count is None or 0 <= count < 1 << 64
