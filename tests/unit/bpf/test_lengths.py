"""The buckets of lengths: bpf/waits/lengths.h itself, against what Python takes them for."""

from __future__ import annotations

import numpy as np
import pytest

from ebpfprof.profile.wait_histogram import SCALE
from ebpfprof.profilers.waits.length_table import hold_key, run_queue_key
from tests.unit.bpf.native import Native, build

pytestmark = pytest.mark.machine

PROGRAM = """
#include "waits/lengths.h"
u64 bucket(u64 ns) {
    struct length at = length_of(0, ns);
    return at.key * LENGTHS_IN_ROW + at.index;
}
void make(u64 stack) {
    struct total none = {};
    totals.insert(&stack, &none);
}
void add(u64 stack, u64 ns, u64 count) {
    struct total more = {.count = count, .delay_ns = ns};
    add_of_length(stack, ns, &more, 0);
}
void take(u64 stack, u64 ns, u64 count) {
    take_count(stack, ns, count, 0);
}
u64 counted(u64 stack, u64 ns) {
    struct length at = length_of(stack, ns);
    struct lengths *row = lengths.lookup(&at.key);
    return row ? row->counts[at.index] : 0;
}
u64 delay(u64 stack, u64 ns) {
    struct length at = length_of(stack, ns);
    struct lengths *row = lengths.lookup(&at.key);
    return row ? row->delay_ns : 0;
}
void count(u64 key, u64 ns) {
    count_length(key, ns, 0);
}
u64 of_lock(u64 lock) {
    return mix(lock, HOLD_ROWS);
}
u64 of_queue(u64 stack) {
    return stack ^ RUN_QUEUE_ROWS;
}
u64 in_totals(u64 stack) {
    struct total *total = totals.lookup(&stack);
    return total ? total->count : 0;
}
u64 lost(void) {
    int index = LOSS_lengths_full;
    return *(u64 *)losses.lookup(&index);
}
"""
STACKS = 0x1234_5678_9ABC_DE40, 0x1234_5678_9ABC_DE80  # they differ above the number of the row


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    macros = {
        **{"MAX_TARGETS": 1, "MAX_SITES": 1, "MAX_STACKS": 4, "MAX_DEPTH": 4, "LOCK_CALLERS": 1},
        **{"MAX_LENGTHS": 4, "COUNT_SHIFT": 16, "WITH_LABELS": 0, "BY_LOCK": 0},
    }
    return Native(build(tmp_path_factory.mktemp("lengths"), PROGRAM, macros))


def test_buckets_are_those_of_python(native: Native) -> None:
    edges = [(1 << bits) + more for bits in range(64) for more in (-1, 0, 1)]
    others = np.random.default_rng(1).integers(0, 1 << 40, 500).tolist()
    for ns in [*edges, *others, (1 << 64) - 1]:
        assert native.call("bucket", ns) == SCALE.bucket_of(ns), ns


def test_waits_are_added_by_stack_and_length(native: Native) -> None:
    native.call("forget_maps")
    for _ in range(3):
        native.call("add", STACKS[0], 1000, 1 << 16)
    native.call("add", STACKS[1], 1000, 8 << 16)
    native.call("take", STACKS[0], 1000, 1 << 16)
    assert native.call("counted", STACKS[0], 1000) == 2 << 16
    assert native.call("counted", STACKS[1], 1000) == 8 << 16
    assert native.call("counted", STACKS[0], 2000) == 0
    assert native.call("delay", STACKS[0], 1000) == 3000


def test_what_does_not_fit_is_in_the_sums_without_its_length(native: Native) -> None:
    native.call("forget_maps")
    native.call("make", STACKS[0])
    for bits in range(0, 12, 2):  # a row each
        native.call("add", STACKS[0], 1000 << bits, 1 << 16)
    assert native.call("lost") == 2
    assert native.call("in_totals", STACKS[0]) == 2 << 16
    native.call("take", STACKS[0], 1000 << 10, 1 << 16)  # which did not fit
    assert native.call("in_totals", STACKS[0]) == 1 << 16
    assert native.call("counted", STACKS[0], 1000) == 1 << 16


@pytest.mark.parametrize("key", [0, 1 << 48 | 0xC000012084, *STACKS, (1 << 64) - 1])
def test_holds_and_times_in_the_run_queue_have_the_keys_that_python_computes(
    key: int, native: Native
) -> None:
    assert native.call("of_lock", key) == hold_key(key)
    assert native.call("of_queue", key) == run_queue_key(key)
    assert len({key, hold_key(key), run_queue_key(key)}) == 3


def test_what_has_its_sums_elsewhere_is_counted_once_or_lost(native: Native) -> None:
    native.call("forget_maps")
    for bits in range(0, 12, 2):  # a row each
        native.call("count", run_queue_key(STACKS[0]), 1000 << bits)
    assert native.call("counted", run_queue_key(STACKS[0]), 1000) == 1 << 16
    assert native.call("counted", STACKS[0], 1000) == 0
    assert native.call("lost") == 2
