"""ELF files: the content of valid ones, and the errors for others."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from symbolizer import ElfError, ElfFile, Section, Segment, UnsupportedElf
from tests.unit.symbolizer.elf.elf_writer import (
    PF_R,
    PF_W,
    PF_X,
    PT_NOTE,
    SHT_NOBITS,
    SHT_NOTE,
    ElfWriter,
    Load,
    Part,
    note,
)

TEXT = Load(0x401000, b"some code here..", PF_R | PF_X)
DATA = Load(0x500000, b"data", PF_R | PF_W, memsz=0x100)
BUILD_ID = note(b"GNU\0", 3, bytes(range(20)))


def elf(*segments: Load, sections: list[Part] | None = None) -> ElfFile:
    writer = ElfWriter(list(segments or (TEXT, DATA)), sections or [])
    return ElfFile.from_bytes(writer.build())


def test_segments_and_sections() -> None:
    sections = [
        Part(".text", 0x401000, 16),
        Part(".bss", 0x500004, 0xFC, kind=SHT_NOBITS),
        Part(".comment", data=b"hello"),
    ]
    file = elf(sections=sections)
    assert not file.is_pie
    offset = 64 + 2 * 56
    assert file.segments == (
        Segment(0x401000, 16, offset, 16, PF_R | PF_X),
        Segment(0x500000, 0x100, offset + 16, 4, PF_R | PF_W),
    )
    assert [segment.executable for segment in file.segments] == [True, False]
    assert [segment.writable for segment in file.segments] == [False, True]
    assert file.sections[".text"] == Section(".text", 0x401000, offset, 16, 2)
    assert file.sections[".bss"].nobits
    comment = file.sections[".comment"]
    assert file.read_offset(comment.offset, comment.size) == b"hello"


def test_reads_by_address() -> None:
    file = elf()
    assert file.read(0x401005, 4) == b"code"
    assert file.read(0x500000, 4) == b"data"
    assert file.vaddr_to_offset(0x401005) == 64 + 2 * 56 + 5
    assert file.file_bytes_after(0x401005) == 11


@pytest.mark.parametrize(
    ("vaddr", "size"),
    [(0x400FFF, 1), (0x401010, 1), (0x401000, 17), (0x401000, -1), (0x500004, 1), (1 << 64, 1)],
)
def test_reads_by_address_outside_of_the_file_raise(vaddr: int, size: int) -> None:
    with pytest.raises(ElfError):
        elf().read(vaddr, size)


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, 10_000), (10_000, 1), (5, -1)])
def test_reads_by_offset_outside_of_the_file_raise(offset: int, size: int) -> None:
    with pytest.raises(ElfError, match="outside"):
        elf().read_offset(offset, size)


def test_a_position_independent_file() -> None:
    assert ElfFile.from_bytes(ElfWriter([TEXT], kind=3).build()).is_pie


@pytest.mark.parametrize(
    ("writer", "named"),
    [
        (ElfWriter([TEXT], machine=183), "64-bit little-endian AArch64"),
        (ElfWriter([TEXT], machine=3, word=1), "32-bit little-endian x86"),
        (ElfWriter([TEXT], machine=999), "machine 999"),
        (ElfWriter([TEXT], kind=1), "relocatable object"),
        (ElfWriter([TEXT], kind=4), "core dump"),
    ],
)
def test_the_error_names_other_kinds_of_file(writer: ElfWriter, named: str) -> None:
    with pytest.raises(UnsupportedElf, match=named):
        ElfFile.from_bytes(writer.build())


def test_the_error_names_a_big_endian_machine() -> None:
    data = bytearray(ElfWriter([TEXT]).build())
    data[5] = 2
    data[16:20] = struct.pack(">HH", 2, 22)
    with pytest.raises(UnsupportedElf, match="64-bit big-endian S390"):
        ElfFile.from_bytes(bytes(data))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"#!/bin/sh\n" * 10, bytes(4096)])
def test_a_file_that_is_not_elf(data: bytes) -> None:
    with pytest.raises(ElfError):
        ElfFile.from_bytes(data)


def test_a_truncated_segment() -> None:
    data = ElfWriter([TEXT, DATA]).build()
    with pytest.raises(ElfError, match="past the end of the file"):
        ElfFile.from_bytes(data[:-1])


def test_a_file_without_segments() -> None:
    with pytest.raises(ElfError, match="nothing to load"):
        ElfFile.from_bytes(ElfWriter([Load(0, BUILD_ID, kind=PT_NOTE)]).build())


@pytest.mark.parametrize(
    "writer",
    [
        ElfWriter([TEXT], [Part(".text", 0x401000, 16)], shoff=1 << 40),
        ElfWriter([TEXT], [Part(".text", 0x401000, 16)], shoff=65),
        ElfWriter([TEXT], [Part(".text", 0x401000, 16)], shnum=60_000),
    ],
)
def test_corrupt_section_headers_leave_the_segments(writer: ElfWriter) -> None:
    file = ElfFile.from_bytes(writer.build())
    assert file.read(0x401000, 4) == b"some"


def test_a_section_outside_of_the_file_is_left_out() -> None:
    file = elf(TEXT, sections=[Part(".text", 0x401000, 16), Part(".far", 0x401000, 1 << 40)])
    assert ".text" in file.sections
    assert ".far" not in file.sections


def test_a_section_name_without_an_end_does_not_read_the_whole_file() -> None:
    parts = [Part(".text", 0x401000, 16), Part(".big", data=b"x" * (9 << 20))]
    data = bytearray(ElfWriter([TEXT], parts).build())
    (shoff,) = struct.unpack_from("<Q", data, 40)
    names = shoff + 3 * 64
    big = struct.unpack_from("<Q", data, shoff + 2 * 64 + 24)[0]
    struct.pack_into("<Q", data, names + 24, big)
    assert ElfFile.from_bytes(bytes(data)).sections == {}


@pytest.mark.parametrize("as_section", [False, True])
def test_build_id(as_section: bool) -> None:
    notes = note(b"Go\0\0", 4, b"abc/def") + BUILD_ID
    if as_section:
        file = elf(TEXT, sections=[Part(".note", data=notes, kind=SHT_NOTE)])
    else:
        file = elf(TEXT, Load(0x400F00, notes, kind=PT_NOTE))
    assert file.build_id == bytes(range(20)).hex()


@pytest.mark.parametrize("notes", [b"", BUILD_ID[:-1], b"\xff" * 64, note(b"Go\0\0", 3, b"x")])
def test_a_file_without_a_build_id(notes: bytes) -> None:
    assert elf(TEXT, Load(0x400F00, notes, kind=PT_NOTE)).build_id == ""


def test_scan_repeats_the_overlap() -> None:
    file = elf(TEXT)
    assert list(file.scan(file.segments[0], 6, overlap=2)) == [
        (0x401000, b"some cod"),
        (0x401006, b"ode here"),
        (0x40100C, b"re.."),
    ]


def test_open_by_path_and_by_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(ElfWriter([TEXT]).build())
    with ElfFile.open(path) as file:
        assert file.size == path.stat().st_size
        assert file.read(0x401000, 4) == b"some"
    descriptor = os.open(path, os.O_RDONLY)
    try:
        file = ElfFile.open(descriptor)
    finally:
        os.close(descriptor)
    # The descriptor was duplicated: it may be closed.
    assert file.read(0x401000, 4) == b"some"
    file.close()
    with pytest.raises(ElfError):
        file.read(0x401000, 4)


def test_a_file_truncated_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(ElfWriter([TEXT]).build())
    with ElfFile.open(path) as file:
        os.truncate(path, 100)
        with pytest.raises(ElfError, match="truncated"):
            file.read(0x401000, 4)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(ElfError, match="not a regular file"):
            ElfFile.open(path)
    with pytest.raises(ElfError, match="cannot open"):
        ElfFile.open(tmp_path / "missing")
    with pytest.raises(ElfError, match="cannot open"):
        ElfFile.open(999_999)


def test_refused_files_leave_no_descriptor_open(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"not an ELF file" * 10)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ElfError):
        ElfFile.open(path)
    assert set(os.listdir("/proc/self/fd")) == before
