"""Programs made to exhaust their reader."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from symbolizer import ElfError, ElfFile, GoBinary, GoTableError
from symbolizer.x86.call_sites import candidate_calls
from tests.builds import NEWEST, versions
from tests.unit.symbolizer.elf.elf_writer import PF_R, PF_X, ElfWriter, Load
from tests.unit.symbolizer.go_programs import binary, module_vaddr, only, program


def table_offset(found: GoBinary) -> int:
    """File offset of pclntab."""
    return found.elf.vaddr_to_offset(found._table.header.vaddr)


@pytest.mark.parametrize("minor", versions("1.19", NEWEST))
def test_a_circular_inline_tree_ends(minor: str) -> None:
    found = binary(minor)
    exercise = only(found, "main.exercise")
    inlined = next(pc for pc in range(exercise.entry, exercise.end) if len(found.frames(pc)) > 1)
    record = found._table.function(exercise.index)
    word = module_vaddr(found.elf) + found.layout.offset("moduledata", "gofunc")
    gofunc = int.from_bytes(found.elf.read(word, 8), "little")
    tree = found.elf.vaddr_to_offset(gofunc + (record.inline_tree or 0))
    data = bytearray(program(minor))
    parent = found.layout.offset("inlinedCall", "parentPc")
    for node in range(40):
        at = tree + node * found.layout.size("inlinedCall") + parent
        struct.pack_into("<i", data, at, inlined - exercise.entry)
    changed = GoBinary.open(ElfFile.from_bytes(bytes(data)))
    with pytest.raises(GoTableError, match="circle"):
        changed.frames(inlined)


def test_overlapping_line_tables_take_bounded_time() -> None:
    """Each function's line table is the same long run of bytes, beginning one byte later."""
    found = binary()
    table = found._table
    data = bytearray(program())
    pctab = table_offset(found) + table.header.pctab_offset
    data[pctab + 1 : pctab + table.pctab.size - 1] = b"\x02" * (table.pctab.size - 2)
    data[pctab + table.pctab.size - 1] = 0
    records = table_offset(found) + table.header.pcln_offset
    pcln = found.layout.offset("_func", "pcln")
    for index, offset in enumerate(table.offsets.tolist()):
        struct.pack_into("<I", data, records + offset + pcln, 2 + 2 * index)
    changed = GoBinary.open(ElfFile.from_bytes(bytes(data)))
    with pytest.raises(GoTableError, match="overlap"):
        changed.frames_many(function.entry for function in found.functions())


def test_overlapping_names_take_bounded_memory() -> None:
    found = binary()
    table = found._table
    data = bytearray(program())
    names = table_offset(found) + table.header.name_offset
    data[names : names + 30_000] = b"x" * 30_000
    data[names + 30_000] = 0
    records = table_offset(found) + table.header.pcln_offset
    for index, offset in enumerate(table.offsets.tolist()):
        struct.pack_into("<I", data, records + offset + 4, index)
    changed = GoBinary.open(ElfFile.from_bytes(bytes(data)))
    with pytest.raises(GoTableError, match="overlap"):
        changed.frames_many(function.entry for function in found.functions())


def test_a_name_without_an_end_is_refused() -> None:
    found = binary()
    table = found._table
    data = bytearray(program())
    names = table_offset(found) + table.header.name_offset
    data[names : names + 40_000] = b"x" * 40_000
    changed = GoBinary.open(ElfFile.from_bytes(bytes(data)))
    with pytest.raises(GoTableError, match="does not end"):
        next(changed.functions())


def test_a_sparse_file_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    header = ElfWriter([Load(0x1000, b"", PF_R | PF_X)]).build()
    size = 1 << 40
    data = bytearray(header)
    struct.pack_into("<QQ", data, 64 + 32, size - len(header), size - len(header))
    sparse.write_bytes(data)
    os.truncate(sparse, size)
    with pytest.raises(ElfError, match="more than 2 GiB"):
        ElfFile.open(sparse)


def test_too_many_calls_of_a_function_are_refused() -> None:
    start, target = 0x1000, 0x900
    calls = [struct.pack("<Bi", 0xE8, target - start - 5 * n - 5) for n in range((1 << 20) + 1)]
    elf = ElfFile.from_bytes(ElfWriter([Load(start, b"".join(calls), PF_R | PF_X)]).build())
    end = start + 5 * len(calls)
    assert len(candidate_calls(elf.read, start, end - 5, [target])[target]) == 1 << 20
    with pytest.raises(GoTableError, match="more places than in any real program"):
        candidate_calls(elf.read, start, end, [target])
