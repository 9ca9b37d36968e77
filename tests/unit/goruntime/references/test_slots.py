"""Which slot a word points to."""

from __future__ import annotations

import numpy as np
import pytest

from ebpfprof.goruntime.references.slots import Slots

START = 0xC0_0000_0000
PAGE = 8192
ROW = np.dtype(
    [("start", "<u8"), ("pages", "<u8"), ("slot", "<u8"), ("class", "u1"), ("free_from", "<u2")]
)


def slots(*rows: tuple[int, int, int, int]) -> Slots:
    """Spans with start, pages, size of a slot, and class."""
    return Slots(np.array([(*row, 0) for row in rows], ROW))


def of(found: Slots, *words: int) -> list[tuple[int, bool]]:
    numbers, are_first = found.find(np.array(words, np.uint64))
    return list(zip(numbers.tolist(), are_first.tolist(), strict=True))


def test_slots_are_numbered_by_address() -> None:
    found = slots((START + PAGE, 1, 4096, 10), (START, 1, 48, 8))
    assert found.count == 170 + 2
    assert of(found, START, START + 47, START + 48, START + PAGE + 4096) == [
        (0, True),
        (0, False),
        (1, True),
        (171, True),
    ]
    assert found.addresses(np.array([1, 171])).tolist() == [START + 48, START + PAGE + 4096]
    assert found.bytes_of(np.array([1, 171])).tolist() == [48, 4096]


@pytest.mark.parametrize("size", [16, 48, 112, 1152, 18432])
def test_every_address_of_a_span_agrees_with_a_division(size: int) -> None:
    pages = -(-4 * size // PAGE)
    found = slots((START, pages, size, 10))
    addresses = np.arange(START, START + pages * PAGE, 8, dtype=np.uint64)
    numbers, are_first = found.find(addresses)
    expected = (addresses - np.uint64(START)) // np.uint64(size)
    expected[expected >= pages * PAGE // size] = np.uint64(2**64 - 1)
    assert numbers.astype(np.int64).astype(np.uint64).tolist() == expected.tolist()
    assert are_first[numbers >= 0].sum() == found.count


def test_a_large_object_is_one_slot() -> None:
    found = slots((START, 5, 5 * PAGE, 0))
    assert found.count == 1
    assert of(found, START + 4 * PAGE + 8, START + 5 * PAGE) == [(0, False), (-1, False)]


def test_other_words_point_nowhere() -> None:
    found = slots((START, 1, 64, 10), (START + (1 << 26) * 7, 1, 64, 10))
    words = (0, 1, START - 1, START + PAGE, START + (1 << 26), 1 << 63, (1 << 64) - 1)
    assert {number for number, _ in of(found, *words)} == {-1}
    assert of(found, START + (1 << 26) * 7) == [(128, True)]


def test_no_spans() -> None:
    found = slots()
    assert found.count == 0
    assert of(found, 0, START) == [(-1, False), (-1, False)]


def test_spans_that_overlap_or_are_beyond_limits_are_left_out() -> None:
    whole = PAGE * 8
    found = slots((START, 8, whole, 0), (START + PAGE, 1, 64, 10), (START + whole, 1, 64, 10))
    assert found.left_out == PAGE
    assert found.count == 1 + 128
    found = slots((START, 1, 64, 10), (START + (1 << 47), 1, 64, 10))
    assert found.left_out == PAGE
