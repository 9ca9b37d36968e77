"""Which object is at an address, and at what bias."""

from __future__ import annotations

import random

from ebpfprof.process.mappings import (
    AddressRanges,
    MappedObject,
    bias_of,
)
from ebpfprof.process.process import MapsLine
from symbolizer import ElfFile
from tests.unit.process.scripted_target import anonymous
from tests.unit.symbolizer.elf.elf_writer import PF_R, PF_W, PF_X, ElfWriter, Load


def test_the_newest_of_overlapping_objects_wins() -> None:
    dice = random.Random(1)
    for _ in range(300):
        pieces, expected = AddressRanges(), dict[int, MappedObject]()
        for _ in range(12):
            start = dice.randrange(30)
            limit = start + 1 + dice.randrange(12)
            new = anonymous(start, limit)
            pieces.put(new)
            expected |= dict.fromkeys(range(start, limit), new)
            found = {at: each for at in range(50) if (each := pieces.at(at))}
            assert found == expected
            assert set(pieces.objects()) == set(expected.values())


def test_no_object_is_below_the_first_or_above_the_last() -> None:
    pieces = AddressRanges()
    assert pieces.at(5) is None
    pieces.put(anonymous(10, 20))
    assert pieces.at(9) is None
    assert pieces.at(20) is None
    assert pieces.at((1 << 64) - 1) is None


def bias(offset: int, size: int, *segments: Load) -> int | None:
    """Of pages mapped at 0x7f0000000000."""
    start = 0x7F0000000000
    mapped = MapsLine(start, start + size, offset, 1, 1, "x")
    return bias_of(mapped, ElfFile.from_bytes(ElfWriter(list(segments)).build()))


def test_the_bias_comes_from_the_segment_that_is_mapped() -> None:
    # As lld lays out a file: segments follow each other in the file without a gap, and one page
    # of it is mapped three times.
    header = 64 + 3 * 56
    read_only = Load(0, bytes(0x1670 - header), PF_R)
    code = Load(0x2670, bytes(0x3000), PF_R | PF_X)
    data = Load(0x6670, bytes(0x2000), PF_R | PF_W)
    segments = (read_only, code, data)
    assert bias(0x1000, 0x4000, *segments) == 0x7F0000000000 - 0x1000 - (0x2670 - 0x1670)
    # A part of the code, as mprotect splits a mapping.
    assert bias(0x3000, 0x1000, *segments) == 0x7F0000000000 - 0x3000 - (0x2670 - 0x1670)
    # Data that was made executable.
    assert bias(0x5000, 0x1000, *segments) == 0x7F0000000000 - 0x5000 - (0x6670 - 0x4670)
    assert bias(0x9000, 0x1000, *segments) is None


def test_a_small_part_of_code_in_the_mapping_decides() -> None:
    header = 64 + 2 * 56
    read_only = Load(0, bytes(0x1F00 - header), PF_R)
    code = Load(0x2F00, bytes(0x80), PF_R | PF_X)
    assert bias(0x1000, 0x1000, read_only, code) == 0x7F0000000000 - 0x1000 - 0x1000


def test_the_code_segment_with_most_of_the_mapping_decides() -> None:
    header = 64 + 2 * 56
    first = Load(0x1000, bytes(0x1800 - header), PF_R | PF_X)
    second = Load(0x12800, bytes(0x3000), PF_R | PF_X)
    assert bias(0x1000, 0x4000, first, second) == 0x7F0000000000 - 0x1000 - (0x12800 - 0x1800)
    assert bias(0, 0x2000, first, second) == 0x7F0000000000 - (0x1000 - header)
