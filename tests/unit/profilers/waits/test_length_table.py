"""The map of lengths, as the kernel fills it, turned into a histogram for each stack."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ebpfprof.kernel import c_facts
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram
from ebpfprof.profilers.waits import collector
from ebpfprof.profilers.waits.length_table import LengthSums, LengthTable, run_queue_key
from tests.recorded.saved import Maps, SavedProgram

ONE = 1 << 16
A, B = 0xABCD_0000_0000_0040, 0xABCD_0000_0000_0080
MS = 1_000_000


MB = 1_000_000
STACKS = 10_000


def table(*waits: tuple[int, int, int]) -> LengthTable:
    """One that has a number of waits, in the kernel's unit, of each stack and length (ns)."""
    rows: dict[int, list[int]] = {}
    for stack, ns, units in waits:
        row, column = divmod(SCALE.bucket_of(ns), 15)
        sums = rows.setdefault(stack | row, [0] * 16)
        sums[column] += units
        sums[15] += ns
    numbers = np.array(list(rows.values()), np.uint64).reshape(-1, 16)
    return table_of(np.array(list(rows), np.uint64), numbers[:, :15], numbers[:, 15])


def table_of(
    keys: npt.NDArray[np.uint64], counts: npt.NDArray[np.uint64], delays: npt.NDArray[np.uint64]
) -> LengthTable:
    maps = Maps(None)
    values = np.zeros(len(keys), [("delay_ns", np.uint64), ("counts", np.uint64, 15)])
    values["counts"], values["delay_ns"] = counts, delays
    maps.hashes["end"] = {"lengths": (keys, values)}
    program = SavedProgram(maps)
    program.show("end")
    return LengthTable(cast("Any", program), 16)


def test_each_stack_has_its_own_waits() -> None:
    lengths = table(
        (A, MS, 2 * ONE), (B, 300, ONE), (A, 800 * MS, ONE), (A, 300, ONE), (B, 0, ONE)
    ).read()
    waits = WaitHistogram.of([300, MS, MS, 800 * MS])
    assert lengths.of(A) == LengthSums(4 * ONE, 801 * MS + 300, waits)
    # The lowest bits of a key have the number of a row.
    assert lengths.of(B | 7) == LengthSums(2 * ONE, 300, WaitHistogram.of([0, 300]))
    assert lengths.of(0x40) == LengthSums()


def test_an_empty_map_has_no_lengths() -> None:
    assert table().read().of(A) == LengthSums()


def test_with_gos_sampling_a_wait_stands_for_a_part_of_some() -> None:
    found = table((A, 300, 5 * ONE // 2)).read().of(A)
    assert found.lengths.total == 2.5


def test_what_is_being_moved_is_left_out() -> None:
    """A wake may be taken back from a row before another processor added it there."""
    found = table((A, 300, ONE), (A, MS, (1 << 64) - ONE)).read().of(A)
    assert found.lengths == WaitHistogram.of([300])


def test_forgotten_stacks_have_no_rows() -> None:
    lengths = table((A, MS, ONE), (A, 300, ONE), (B, MS, ONE))
    lengths.forget([A])
    assert lengths.read().of(A) == LengthSums()
    assert lengths.read().of(B).lengths == WaitHistogram.of([MS])


def test_the_run_queue_after_a_stack_is_apart_from_its_waits() -> None:
    lengths = table((A, MS, ONE), (run_queue_key(A), 300, ONE))
    assert lengths.read().of(A).lengths == WaitHistogram.of([MS])
    assert lengths.read().of(run_queue_key(A)).lengths == WaitHistogram.of([300])
    lengths.forget([A, run_queue_key(A)])
    assert lengths.read().of(run_queue_key(A)) == LengthSums()


def test_ten_thousand_stacks_take_less_than_ten_mb() -> None:
    """In the kernel and here: with two or three rows each, and three buckets of a row."""
    stacks = np.arange(1, STACKS + 1, dtype=np.uint64) << np.uint64(6)
    keys = np.concatenate(
        [stacks | np.uint64(5), stacks | np.uint64(6), stacks[::2] | np.uint64(7)]
    )
    counts = np.zeros((len(keys), 15), np.uint64)
    counts[:, 4:7] = ONE
    lengths = table_of(keys, counts, np.full(len(keys), MS, np.uint64))
    lengths.read()  # imports
    tracemalloc.start()
    try:
        read = lengths.read()
        kept = [read.of(key).lengths for key in stacks.tolist()]
        del read
        own, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(lengths_of_stack.total for lengths_of_stack in kept) == 3 * len(keys)
    # kernel/bpf/hashtab.c, Linux 5.15 to 6.18: a row in a slab of 192 bytes, a bucket in 16 bytes.
    row = 48 + 8 + c_facts.struct("waits/lengths.h", "lengths").itemsize
    assert row <= 192
    assert len(keys) * 192 + collector.MAX_LENGTHS * 16 + own < 10 * MB
