"""How long our BPF programs take: bpf/common/cost.h itself, by a clock that the test sets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ebpfprof.overhead.cost import Runs, runs
from tests.unit.bpf.native import Native, build

pytestmark = pytest.mark.machine

PROGRAM = """
#include "common/cost.h"
void run(u64 takes_ns) {
    struct cost *cost = run_begins(0);
    now_ns += takes_ns;
    run_ends(cost);
    now_ns += 1000;
}
u64 told(u64 field) {
    struct cost *cost = costs_rows;
    return field == 0 ? cost->runs : field == 1 ? cost->timed : cost->timed_ns;
}
"""
USUAL_NS = 200
COLD_NS = 40_000
PREEMPTED_NS = 3_000_000


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return Native(build(tmp_path_factory.mktemp("cost"), PROGRAM, {"MAX_TARGETS": 1}))


def reported(native: Native, lengths_ns: Sequence[int]) -> Runs:
    """The runs counted by cost.h, of these lengths, on a processor that had none before."""
    native.call("forget_maps")
    for length_ns in lengths_ns:
        native.call("run", length_ns)
    return runs(*(native.call("told", field) for field in range(3)))


def test_equal_runs_have_their_exact_cost(native: Native) -> None:
    for count in (10, 100, 10_000):
        found = reported(native, [USUAL_NS] * count)
        assert found.count == count
        assert found.each_ns == USUAL_NS


def test_some_of_few_runs_and_one_in_61_of_many_are_timed(native: Native) -> None:
    assert reported(native, [USUAL_NS] * 20).timed >= 3
    often = 5 * 17
    assert reported(native, [USUAL_NS] * (often + 61 * 100)).timed in range(110, 120)


@pytest.mark.parametrize("count", [20, 50, 1000])
def test_a_single_slow_run_does_not_raise_the_cost(native: Native, count: int) -> None:
    """The first run on a processor, with cold caches; or one that was interrupted for a moment."""
    cold = reported(native, [COLD_NS, *[USUAL_NS] * count])
    assert cold.each_ns == USUAL_NS
    for number in (3, 9, count // 2, count - 1):
        lengths = [USUAL_NS] * count
        lengths[number] = COLD_NS
        assert reported(native, lengths).each_ns == USUAL_NS, number


def test_time_of_other_threads_does_not_count(native: Native) -> None:
    """However often: no program of ours takes as long as a time slice of another thread."""
    lengths = [PREEMPTED_NS if number % 3 == 1 else USUAL_NS for number in range(3000)]
    assert reported(native, lengths).each_ns == USUAL_NS


def test_short_and_long_runs_count_by_their_frequency(native: Native) -> None:
    """A probe at a park takes twice as long as one at a wake."""
    found = reported(native, [400, 100] * 20_000)
    assert found.each_ns == pytest.approx(250, rel=0.02)
