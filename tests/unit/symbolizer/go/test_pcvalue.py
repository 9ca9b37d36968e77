"""pc-value tables, compared with tables that the test encodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbolizer.elf.file import ElfFile
from symbolizer.elf.table import FileTable
from symbolizer.errors import GoTableError
from symbolizer.go.pcvalue import NO_VALUE, PcValues, read_table, steps, value_at
from tests.unit.symbolizer.elf.elf_writer import ElfWriter, Load
from tests.unit.varints import varint

Pairs = Sequence[tuple[int, int]]
"""(value, bytes of code for which it holds)."""

VALUES = st.integers(-(1 << 31) + 1, (1 << 31) - 1)
STEPS = st.integers(1, 1 << 20)


def encoded(pairs: Pairs) -> bytes:
    """A table as the Go linker writes it, without the zero at the end."""
    data, before = b"", NO_VALUE
    for value, step in pairs:
        change = (value - before) & 0xFFFFFFFF
        before = value
        data += varint((change << 1 ^ -(change >> 31)) & 0xFFFFFFFF) + varint(step)
    return data


def expected_at(pairs: Pairs, offset: int) -> int:
    end = 0
    for value, step in pairs:
        end += step
        if offset < end:
            return value
    return NO_VALUE


def distinct(pairs: Pairs) -> Pairs:
    """Without repeated values, which the linker never writes."""
    kept = list(pairs[:1])
    for pair in pairs[1:]:
        if pair[0] != kept[-1][0]:
            kept.append(pair)
    return kept


TABLES = st.lists(
    st.lists(st.tuples(st.integers(-3, 300), STEPS), max_size=12).map(distinct), min_size=1
)


@given(TABLES, st.data())
def test_tables_decode_to_the_values_that_were_encoded(
    tables: list[Pairs], data: st.DataObject
) -> None:
    values = PcValues([encoded(pairs) for pairs in tables])
    numbers = data.draw(st.lists(st.integers(0, len(tables) - 1), max_size=30))
    ends = [sum(step for _, step in tables[number]) for number in numbers]
    offsets = [data.draw(st.integers(0, end + 5)) for end in ends]
    expected = [expected_at(tables[n], offset) for n, offset in zip(numbers, offsets, strict=True)]
    answers = values.at(np.array(numbers, dtype=np.int64), np.array(offsets, dtype=np.int64))
    assert answers.tolist() == expected
    alone = zip(numbers, offsets, strict=True)
    assert [value_at(encoded(tables[n]), offset) for n, offset in alone] == expected
    assert [steps(encoded(pairs)) for pairs in tables] == [
        values.steps(number) for number in range(len(tables))
    ]


@given(st.lists(st.tuples(st.integers(-(1 << 29), 1 << 29), STEPS), min_size=1).map(distinct))
def test_numbers_of_every_length(pairs: Pairs) -> None:
    ends = np.cumsum([step for _, step in pairs])
    answers = PcValues([encoded(pairs)]).at(np.zeros_like(ends), ends - 1)
    assert answers.tolist() == [value for value, _ in pairs]
    alone = [value_at(encoded(pairs), int(end) - 1) for end in ends]
    assert alone == [value for value, _ in pairs]


def test_offsets_before_inside_and_behind_a_table() -> None:
    values = PcValues([b"", encoded([(-1, 4), (7, 2)])])
    table = np.ones(6, dtype=np.int64)
    offsets = np.array([-5, 0, 3, 4, 5, 6])
    # As in runtime.pcvalue, offsets before the function have its first value.
    assert values.at(table, offsets).tolist() == [-1, -1, -1, 7, 7, NO_VALUE]
    assert values.at(0 * table, offsets).tolist() == [NO_VALUE] * 6
    table_alone = encoded([(-1, 4), (7, 2)])
    assert [value_at(table_alone, at) for at in offsets.tolist()] == [-1, -1, -1, 7, 7, NO_VALUE]
    assert value_at(b"", 0) == NO_VALUE
    long = encoded([(number % 2, 1) for number in range(1000)])
    assert [value_at(long, at) for at in (0, 998, 999, 1000)] == [0, 0, 1, NO_VALUE]
    assert steps(long) == [(number + 1, number % 2) for number in range(1000)]


@pytest.mark.parametrize(
    "table",
    [
        b"\x02",  # no second number
        b"\x02\x80",  # in the middle of a number
        b"\x02\xff\xff\xff\xff\xff\x01",  # six bytes
        b"\x02\xff\xff\xff\xff\x7f",  # 35 bits
        b"\x80\x80\x80\x80\x10\x01" * 2,  # a value of more than 31 bits
    ],
)
def test_corrupt_tables_are_refused(table: bytes) -> None:
    with pytest.raises(GoTableError):
        PcValues([b"\x02\x01", table])
    with pytest.raises(GoTableError):
        value_at(table, 1 << 31)


def test_a_table_must_end() -> None:
    data = b"\0\x02\x01\0" + b"\x02\x01" * (1 << 20)
    elf = ElfFile.from_bytes(ElfWriter([Load(0x1000, data)]).build())
    pctab = FileTable(elf, elf.vaddr_to_offset(0x1000), len(data), "pctab")
    assert read_table(pctab, 0) == b""
    assert read_table(pctab, 1) == b"\x02\x01"
    for position in (4, len(data) - 2, len(data), 1 << 40):
        with pytest.raises(GoTableError):
            read_table(pctab, position)
