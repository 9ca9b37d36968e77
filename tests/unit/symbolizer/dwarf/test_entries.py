"""DWARF entries: found by name, read one by one, from valid and corrupt bytes."""

from __future__ import annotations

import struct
import zlib

import pytest

from symbolizer import ElfFile
from symbolizer.dwarf.constants import (
    TAG_INLINED,
    TAG_LEXICAL_BLOCK,
    TAG_POINTER,
    TAG_STRUCTURE,
    TAG_SUBPROGRAM,
    TAG_VARIABLE,
)
from symbolizer.dwarf.entries import Dwarf
from symbolizer.dwarf.forms import DwarfError, sleb, uleb
from symbolizer.dwarf.sections import dwarf_section
from tests.builds import versions
from tests.unit.symbolizer.elf.elf_writer import ElfWriter, Load, Part
from tests.unit.symbolizer.locks.locks_program import NEWEST, binary


def dwarf_file(info: bytes, abbrev: bytes, *, compress: bool = False, claim: int = 0) -> ElfFile:
    """A file with nothing but DWARF, with the size `claim` if it is compressed."""
    parts = []
    for name, content in (("debug_info", info), ("debug_abbrev", abbrev)):
        if compress:
            size = (claim or len(content)).to_bytes(8, "big")
            parts.append(Part(f".z{name}", data=b"ZLIB" + size + zlib.compress(content)))
        else:
            parts.append(Part(f".{name}", data=content))
    return ElfFile.from_bytes(ElfWriter([Load(0x1000, bytes(16))], parts).build())


@pytest.mark.machine
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("minor", versions("1.19", NEWEST))
def test_plain_and_compressed_dwarf_are_read(minor: str, compress: bool) -> None:
    program = binary(minor, "plain").elf
    (expected,) = Dwarf(program).find("main.plain", (TAG_VARIABLE,))
    info, abbrev = (dwarf_section(program, name) for name in ("debug_info", "debug_abbrev"))
    elf = dwarf_file(info, abbrev, compress=compress)
    assert Dwarf(elf).find("main.plain", (TAG_VARIABLE,)) == [expected]


@pytest.mark.parametrize("claim", [1, 1 << 17, 1 << 30, (1 << 64) - 1])
def test_a_compressed_section_with_a_false_size_is_refused(claim: int) -> None:
    dwarf = Dwarf(dwarf_file(bytes(1 << 16), b"\0", compress=True, claim=claim))
    if claim == 1:
        assert dwarf.find("main", (TAG_VARIABLE,)) == []
    else:
        with pytest.raises(DwarfError):
            dwarf.find("main", (TAG_VARIABLE,))


def test_entries_nested_too_deep_are_refused() -> None:
    # One abbreviation: a lexical block with children and no attribute.
    abbrev = bytes([1, TAG_LEXICAL_BLOCK, 1, 0, 0, 0])
    entries = b"\x01" * 100_000
    header = struct.pack("<IHIB", len(entries) + 7, 4, 0, 8)
    dwarf = Dwarf(dwarf_file(header + entries, abbrev))
    with pytest.raises(DwarfError, match="nested"):
        list(dwarf.children(dwarf.die(len(header)), (TAG_LEXICAL_BLOCK,)))


def test_variables_of_inlined_functions_are_left_out() -> None:
    """No variable of an inlined function is the caller's own, not even one in a block."""
    tags = {1: TAG_SUBPROGRAM, 2: TAG_LEXICAL_BLOCK, 3: TAG_INLINED, 4: TAG_VARIABLE}
    table = b"".join(bytes([code, tag, code < 4, 3, 8, 0, 0]) for code, tag in tags.items())

    def entry(code: int, name: str, *inside: bytes) -> bytes:
        children = b"".join(inside) + b"\0" if code < 4 else b""
        return bytes([code]) + name.encode() + b"\0" + children

    function = entry(
        1,
        "f",
        entry(4, "a"),
        entry(2, "block", entry(4, "b"), entry(3, "g", entry(4, "x"))),
        entry(3, "h", entry(4, "y"), entry(2, "block of h", entry(4, "z"))),
        entry(4, "c"),
    )
    header = struct.pack("<IHIB", len(function) + 7, 4, 0, 8)
    dwarf = Dwarf(dwarf_file(header + function, table + b"\0"))
    (found,) = dwarf.find("f", (TAG_SUBPROGRAM,))
    variables = [
        die.name for die in dwarf.children(found, (TAG_LEXICAL_BLOCK,)) if die.tag == TAG_VARIABLE
    ]
    assert variables == ["a", "b", "c"]
    assert [die.name for die in dwarf.children(found)] == ["a", "block", "h", "c"]


def test_generic_types_are_found_with_any_type_arguments() -> None:
    table = bytes([1, TAG_VARIABLE, 0, 3, 8, 0, 0, 0])
    names = ("F[int].a", "F[G[int]].a", "F[int].b", "F.a", "xF[int].a", "F[int", "F[int].a.c")
    entries = b"".join(b"\x01" + name.encode() + b"\0" for name in names)
    header = struct.pack("<IHIB", len(entries) + 7, 4, 0, 8)
    dwarf = Dwarf(dwarf_file(header + entries, table))

    def found(name: str) -> list[str]:
        return [die.name for die in dwarf.find(name, (TAG_VARIABLE,))]

    assert found("F[...].a") == ["F[int].a", "F[G[int]].a"]
    assert found("F[int].a") == ["F[int].a"]
    assert found("F") == []
    assert found("F[...]") == []


@pytest.mark.parametrize("form", [0x06, 0x08, 0x0A, 0x0F])
def test_an_entry_that_runs_past_its_unit_is_refused(form: int) -> None:
    table = bytes([1, TAG_VARIABLE, 0, 3, form, 0, 0, 0])
    first = struct.pack("<IHIB", 9, 4, 0, 8) + b"\x01\x82"
    second = struct.pack("<IHIB", 9, 4, 0, 8) + b"\x01\0"
    dwarf = Dwarf(dwarf_file(first + second, table))
    with pytest.raises(DwarfError):
        dwarf.die(11)


def test_abbreviations_that_are_cut_off_are_refused() -> None:
    unit = struct.pack("<IHIB", 8, 4, 0, 8) + b"\x01"
    whole = bytes([1, TAG_VARIABLE, 0, 3, 8, 0, 0])
    for size in range(1, len(whole)):
        with pytest.raises(DwarfError):
            Dwarf(dwarf_file(unit, whole[:size])).die(11)


@pytest.mark.parametrize(("version", "kind"), [(2, 0), (3, 0), (4, 0), (5, 1), (5, 3), (5, 4)])
def test_units_of_each_version_and_kind_are_read(version: int, kind: int) -> None:
    """Compilation units, and of version 5 partial ones and skeletons, too."""
    table = bytes([1, TAG_VARIABLE, 0, 3, 8, 0, 0, 0])
    entry = b"\x01main.v\0"
    head = struct.pack("<IB", 0, 8) if kind == 0 else struct.pack("<BBI", kind, 8, 0)
    head += bytes(8) if kind == 4 else b""
    unit = struct.pack("<IH", len(head) + len(entry) + 2, version) + head + entry
    (found,) = Dwarf(dwarf_file(unit, table)).find("main.v", (TAG_VARIABLE,))
    assert found.offset == len(unit) - len(entry)


def test_an_unknown_form_loses_only_the_entries_that_have_it() -> None:
    unknown = 0x7E
    table = bytes([1, TAG_STRUCTURE, 0, 3, 8, 0x0B, unknown, 0, 0])
    table += bytes([2, TAG_VARIABLE, 0, 3, 8, 0, 0, 0])
    entries = b"\x01main.T\0\x07" + b"\x02main.v\0"
    header = struct.pack("<IHIB", len(entries) + 7, 4, 0, 8)
    dwarf = Dwarf(dwarf_file(header + entries, table))
    (found,) = dwarf.find("main.v", (TAG_VARIABLE,))
    assert found.name == "main.v"
    with pytest.raises(DwarfError, match="unknown form"):
        dwarf.find("main.T", (TAG_STRUCTURE,))


def test_references_into_another_file_are_skipped() -> None:
    """Forms that dwz and -gsplit-dwarf write: 4 bytes, or a LEB128 number."""
    forms = {0x1F20: 4, 0x1F21: 4, 0x1C: 4, 0x1D: 4, 0x1F01: 2, 0x1F02: 2}
    table, entries = b"", b""
    for code, (form, size) in enumerate(forms.items(), start=1):
        encoded = bytes([form]) if form < 0x80 else bytes([form & 0x7F | 0x80, form >> 7])
        table += bytes([code, TAG_VARIABLE, 0, 3, 8, 0x49]) + encoded + bytes([0x0B, 0x0B, 0, 0])
        entries += bytes([code]) + b"main.v\0" + b"\x81" * (size - 1) + b"\x01" + bytes([code])
    header = struct.pack("<IHIB", len(entries) + 7, 4, 0, 8)
    found = Dwarf(dwarf_file(header + entries, table + b"\0")).find("main.v", (TAG_VARIABLE,))
    assert [die.values for die in found] == [{3: b"main.v", 0x0B: code} for code in range(1, 7)]


def test_a_name_that_is_the_end_of_a_longer_one_is_found() -> None:
    """The byte in front of it may look like an abbreviation's number: 0x2a is "*"."""
    abbrev = bytes([0x2A, TAG_STRUCTURE, 0, 3, 8, 0, 0, 1, TAG_POINTER, 0, 3, 8, 0, 0, 0])
    entries = b"\x01**main.T\0" + b"\x2amain.T\0"
    header = struct.pack("<IHIB", len(entries) + 7, 4, 0, 8)
    dwarf = Dwarf(dwarf_file(header + entries, abbrev))
    (found,) = dwarf.find("main.T", (TAG_STRUCTURE,))
    assert found.offset == len(header) + 10


@pytest.mark.parametrize(
    ("data", "unsigned", "signed"),
    [(b"\x02", 2, 2), (b"\x7f", 127, -1), (b"\x80\x01", 128, 128), (b"\x80\x7f", 16256, -128)],
)
def test_numbers_of_variable_length_are_decoded(data: bytes, unsigned: int, signed: int) -> None:
    assert uleb(data + b"\x55", 0) == (unsigned, len(data))
    assert sleb(data + b"\x55", 0) == (signed, len(data))
    with pytest.raises(DwarfError):
        uleb(b"\x80" * 20, 0)
