"""The map of lengths, as the kernel fills it, turned into a histogram for each stack."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram
from ebpfprof.profilers.waits.length_table import LengthSums, LengthTable
from tests.recorded.saved import Maps, SavedProgram

ONE = 1 << 16
A, B = 0xABCD_0000_0000_0040, 0xABCD_0000_0000_0080
MS = 1_000_000


def table(*waits: tuple[int, int, int]) -> LengthTable:
    """One that has a number of waits, in the kernel's unit, of each stack and length (ns)."""
    rows: dict[int, list[int]] = {}
    for stack, ns, units in waits:
        row, column = divmod(SCALE.bucket_of(ns), 15)
        sums = rows.setdefault(stack | row, [0] * 16)
        sums[column] += units
        sums[15] += ns
    maps = Maps(None)
    values = np.zeros(len(rows), [("delay_ns", np.uint64), ("counts", np.uint64, 15)])
    numbers = np.array(list(rows.values()), np.uint64).reshape(-1, 16)
    values["counts"], values["delay_ns"] = numbers[:, :15], numbers[:, 15]
    maps.hashes["end"] = {"lengths": (np.array(list(rows), np.uint64), values)}
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
