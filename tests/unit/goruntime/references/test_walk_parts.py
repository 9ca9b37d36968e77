"""What a walk over a heap consists of: marks, numbers of keys, reads of many parts."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from ebpfprof.goruntime.references import key_numbers
from ebpfprof.goruntime.references.key_numbers import KeyNumbers
from ebpfprof.goruntime.references.marks import Marks
from ebpfprof.goruntime.references.parts import BLOCK_BYTES, blocks
from ebpfprof.process.memory import Memory
from tests.unit.goruntime.references.test_slots import PAGE, START, slots

ARENA = 64 << 20


@pytest.mark.parametrize("gap", [PAGE, 5 * ARENA], ids=["one arena", "arenas apart"])
def test_objects_are_marked_each_by_itself(gap: int) -> None:
    found = slots((START, 1, 8, 2), (START + gap, 1, 16, 4))
    marks = Marks(found)
    marked = np.array([0, 8, 56, gap, gap + 32], np.int64)
    marks.set(marked)
    others = np.array([16, 48, 64, gap + 16, gap + 48], np.int64)
    assert not marks.are_unset(marked).any()
    assert marks.are_unset(others).all()
    marks.unset(marked[[1, 3]])
    assert marks.are_unset(marked).tolist() == [False, True, False, True, False]
    cell = marks.cell(gap + 32)
    assert marks.octets[cell >> 3] >> (cell & 7) & 1


def test_keys_are_asked_for_once() -> None:
    asked: list[int] = []

    def make(key: int) -> int:
        asked.append(key)
        return key * 10

    known = KeyNumbers(make)
    assert known.of(np.array([5, 5, 5], np.int64)).tolist() == [50, 50, 50]
    assert known.of(np.array([7, 5, 2, 7], np.int64)).tolist() == [70, 50, 20, 70]
    assert known.of(np.array([2, 7, 5], np.int64)).tolist() == [20, 70, 50]
    assert known.of(np.zeros(0, np.int64)).tolist() == []
    assert sorted(asked) == [2, 5, 7]


def test_a_bounded_number_of_keys_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_numbers, "MOST", 4)
    asked: list[int] = []

    def make(key: int) -> int:
        asked.append(key)
        return key * 10

    known = KeyNumbers(make)
    for first in (1, 4, 1):  # the others were forgotten
        keys = np.arange(first, first + 3)
        assert known.of(keys).tolist() == (10 * keys).tolist()
    assert asked == [1, 2, 3, 4, 5, 6, 1, 2, 3]


class _Pages:
    """Memory with the address of each word in it; nothing is mapped from `end` on."""

    def __init__(self, end: int) -> None:
        self.end, self.pieces = end, 0

    def read(self, address: int, size: int) -> bytes:
        raise NotImplementedError

    def read_pieces(self, here: int, here_count: int, there: int, there_count: int) -> int:
        done = 0
        into = int(ctypes.c_uint64.from_address(here).value)
        pieces = (ctypes.c_uint64 * (2 * there_count)).from_address(there)
        for address, size in zip(pieces[::2], pieces[1::2], strict=True):
            self.pieces += 1
            readable = max(0, min(size, self.end - address))
            words = struct.pack(f"<{readable // 8}Q", *range(address, address + readable, 8))
            ctypes.memmove(into + done, words, readable)
            done += readable
            if readable < size:
                break
        return done or -1

    def require(self) -> None:
        raise NotImplementedError

    def bring(self, address: int, size: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def first_words(pages: _Pages, starts: list[int], sizes: list[int]) -> list[int]:
    memory = Memory(1, pages)
    found: list[int] = []
    for block in blocks(memory, np.array(starts, np.int64), np.array(sizes, np.int64)):
        assert block.words.nbytes <= BLOCK_BYTES
        found += block.words[block.at].tolist()
    return found


def test_neighbours_are_read_at_once() -> None:
    pages = _Pages(1 << 40)
    starts = [4096, 4096 + 64, 4096 + 256, 1 << 20]
    assert first_words(pages, starts, [64, 64, 64, 64]) == starts
    assert pages.pieces == 2
    assert first_words(pages, [], []) == []


def test_many_parts_come_in_blocks() -> None:
    pages = _Pages(1 << 40)
    starts = [*range(1 << 30, (1 << 30) + 3000 * 4096, 4096), 1 << 33, (1 << 33) + BLOCK_BYTES]
    sizes = [1024] * 3000 + [BLOCK_BYTES, BLOCK_BYTES]
    assert first_words(pages, starts, sizes) == starts


def test_what_is_not_mapped_reads_as_zero() -> None:
    starts = [4096, 8192, 65536, 131072]
    assert first_words(_Pages(8192), starts, [64] * 4) == [4096, 0, 0, 0]
    # Not as what was read before, into the same buffer.
    starts = [BLOCK_BYTES, 1 << 30]
    assert first_words(_Pages(2 * BLOCK_BYTES), starts, [BLOCK_BYTES, 64]) == [BLOCK_BYTES, 0]
