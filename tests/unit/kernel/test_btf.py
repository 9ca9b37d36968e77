"""Offsets of struct fields, from BTF written here and from the running kernel's."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from ebpfprof.errors import KernelUnsupported
from ebpfprof.kernel.btf import BtfTypes, field_offset, read_offsets

INT, PTR, ARRAY, STRUCT, UNION, ENUM, FORWARD, TYPEDEF = range(1, 9)
FUNC, FUNC_PROTO, VAR, DATASEC, FLOAT, DECL_TAG, TYPE_TAG, ENUM64 = range(12, 20)
BITFIELDS = 1 << 31

Member = tuple[str, int, int]


class Writer:
    """Writes BTF. Types are numbered from 1 in the order in which they are added."""

    def __init__(self) -> None:
        self.names = bytearray(b"\0")
        self.types = bytearray()

    def name(self, text: str) -> int:
        """Where `text` stands; every text stands once, as in real files."""
        wanted = b"\0" + text.encode() + b"\0"
        at = self.names.find(wanted)
        if not text:
            return 0
        if at < 0:
            at = len(self.names) - 1
            self.names += wanted[1:]
        return at + 1

    def add(self, kind: int, name: str, size: int, *words: int, count: int = 0) -> None:
        info = kind << 24 | count
        self.types += struct.pack(f"<{3 + len(words)}I", self.name(name), info, size, *words)

    def struct(self, name: str, *members: Member, kind: int = STRUCT, flags: int = 0) -> None:
        """Members are (name, number of type, offset in bits)."""
        words = [word for field, type_id, at in members for word in (self.name(field), type_id, at)]
        info = kind << 24 | len(members) | flags
        self.types += struct.pack(f"<{3 + len(words)}I", self.name(name), info, 64, *words)

    def bytes(self) -> bytes:
        sizes = (0, len(self.types), len(self.types), len(self.names))
        return bytes(struct.pack("<HBBI4I", 0xEB9F, 1, 0, 24, *sizes) + self.types + self.names)


def offset(writer: Writer, name: str, field: str) -> int:
    return BtfTypes(writer.bytes(), [name]).field_offset(name, field)


def test_fields_of_a_struct_are_found() -> None:
    writer = Writer()
    writer.add(INT, "int", 4, 32)
    writer.struct("pair", ("first", 1, 0), ("second", 1, 32), ("third", 1, 64))
    assert [offset(writer, "pair", each) for each in ("first", "second", "third")] == [0, 4, 8]


def test_types_of_every_kind_are_skipped() -> None:
    """Each has its own length, and words that look like a struct's header."""
    writer = Writer()
    named, struct_info = writer.name("wanted"), STRUCT << 24 | 1
    false = (named, struct_info, 64)
    writer.add(INT, "int", 4, named)
    writer.add(PTR, "", 1)
    writer.add(ARRAY, "", 0, *false)
    writer.add(UNION, "wanted", 8, *false, count=1)
    writer.add(ENUM, "e", 4, named, struct_info, 64, named, count=2)
    writer.add(FORWARD, "wanted", 0)
    writer.add(TYPEDEF, "wanted", 1)
    writer.add(9, "", 1)
    writer.add(10, "", 1)
    writer.add(11, "", 1)
    writer.add(FUNC, "wanted", 1)
    writer.add(FUNC_PROTO, "", 0, named, struct_info, 64, named, count=2)
    writer.add(VAR, "wanted", 1, named)
    writer.add(DATASEC, "d", 0, *false, *false, count=2)
    writer.add(FLOAT, "double", 8)
    writer.add(DECL_TAG, "wanted", 1, named)
    writer.add(TYPE_TAG, "wanted", 1)
    writer.add(ENUM64, "e", 8, *false, *false, count=2)
    # A member whose offset has a bitfield's size of 4, and whose type has the number of the name.
    members = (("x", named, struct_info), ("wanted", struct_info, 64), ("wanted", 1, 128))
    writer.struct("other", *members, flags=BITFIELDS)
    with pytest.raises(KernelUnsupported):
        offset(writer, "wanted", "wanted")
    writer.struct("wanted", ("x", 1, 0), ("wanted", 1, 320))
    assert offset(writer, "wanted", "wanted") == 40


def test_fields_of_anonymous_members_belong_to_the_outer_struct() -> None:
    writer = Writer()
    writer.add(INT, "int", 4, 32)
    writer.struct("", ("deep", 1, 32), ("", 5, 64))
    writer.struct("", ("", 2, 0), ("", 1, 0), ("flat", 1, 8), kind=UNION)
    writer.struct(
        "outer", ("first", 1, 0), ("", 3, 128), ("named", 2, 512), ("", 6, 640), ("", 7, 0)
    )
    writer.struct("", ("deepest", 1, 8))
    writer.add(FORWARD, "", 0)
    # Unnamed bits of an enum, whose first name and numbers would do as a member.
    writer.add(ENUM, "e", 4, writer.name("missing"), 0, 8, 0, 0, 0, count=3)
    assert offset(writer, "outer", "flat") == 17
    assert offset(writer, "outer", "deep") == 20
    assert offset(writer, "outer", "deepest") == 16 + 8 + 1
    assert offset(writer, "outer", "named") == 64
    with pytest.raises(KernelUnsupported, match=r"no plain field outer\.missing"):
        offset(writer, "outer", "missing")


def test_bitfields_are_not_plain_fields() -> None:
    writer = Writer()
    writer.struct("flags", ("a", 0, 1 << 24), ("plain", 0, 32), ("b", 0, 3), flags=BITFIELDS)
    assert offset(writer, "flags", "plain") == 4
    for field in ("a", "b"):
        with pytest.raises(KernelUnsupported, match=rf"no plain field flags\.{field}"):
            offset(writer, "flags", field)


def test_a_large_offset_is_not_a_bitfield() -> None:
    writer = Writer()
    writer.struct("large", ("far", 0, 5 << 24))
    assert offset(writer, "large", "far") == 5 << 21


def test_names_must_match_as_a_whole() -> None:
    writer = Writer()
    writer.struct("task_struct_ext", ("mm", 0, 64))
    writer.struct("my_task_struct", ("mm", 0, 128))
    writer.struct("task_struct", ("active_mm", 0, 192), ("mm_count", 0, 256), ("mm", 0, 320))
    assert offset(writer, "task_struct", "mm") == 40


def test_structs_of_equal_name_must_agree() -> None:
    writer = Writer()
    writer.struct("twice", ("same", 0, 64), ("moved", 0, 0))
    writer.struct("twice", ("same", 0, 64), ("only", 0, 8), ("moved", 0, 8))
    assert offset(writer, "twice", "same") == 8
    assert offset(writer, "twice", "only") == 1
    with pytest.raises(KernelUnsupported, match=r"twice\.moved, or several"):
        offset(writer, "twice", "moved")


def test_an_unknown_struct_is_an_error() -> None:
    with pytest.raises(KernelUnsupported, match=r"no plain field nothing\.at_all"):
        offset(Writer(), "nothing", "at_all")


def sample() -> bytes:
    writer = Writer()
    writer.struct("", ("deep", 1, 32))
    writer.struct("outer", ("first", 1, 0), ("", 1, 128), ("last", 1, 512))
    return writer.bytes()


def replaced(at: int, word: int) -> bytes:
    """The sample with another word at byte `at` of the types."""
    data = bytearray(sample())
    data[24 + at : 28 + at] = word.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x9f\xeb",
        sample()[:23],
        sample()[:24],
        sample()[:40],
        sample()[:47],
        b"\xeb\x9f" + sample()[2:],
        replaced(4, 0),
        replaced(4, 20 << 24),
        replaced(4, 31 << 24),
        replaced(4, STRUCT << 24 | 0xFFFF),
        replaced(28, STRUCT << 24 | 9),
        replaced(52, 999),  # the type of the anonymous member
        replaced(36, 0xFFFF),  # the name of a member
    ],
)
def test_corrupt_files_are_an_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(data)
    with pytest.raises(KernelUnsupported, match=r"structs can't be read .*Please report this"):
        field_offset("outer", "missing", path)


def test_an_endless_nesting_ends() -> None:
    writer = Writer()
    writer.struct("outer", ("", 2, 0))
    writer.struct("", ("", 2, 8))
    with pytest.raises(KernelUnsupported, match=r"no plain field outer\.missing"):
        offset(writer, "outer", "missing")


def test_a_missing_file_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(KernelUnsupported, match=r"No such file.*CONFIG_DEBUG_INFO_BTF"):
        field_offset("task_struct", "mm", tmp_path / "vmlinux")


def test_the_running_kernel_s_offsets_are_those_of_a_full_parse() -> None:
    parsed = full_parse(Path("/sys/kernel/btf/vmlinux").read_bytes())
    wanted = [
        ("task_struct", "thread"),
        ("thread_struct", "fsbase"),
        ("task_struct", "mm"),
        ("task_struct", "tgid"),
        ("task_struct", "stack"),
        ("mm_struct", "exe_file"),
        ("pt_regs", "sp"),
        ("file", "f_inode"),
        ("inode", "i_ino"),
        ("super_block", "s_dev"),
    ]
    expected = [parsed[each] for each in wanted]
    assert list(read_offsets(wanted)) == expected
    assert field_offset(*wanted[1]) == expected[1]
    assert field_offset("pt_regs", "sp") == 19 * 8  # arch/x86/include/asm/ptrace.h
    assert os.uname().machine == "x86_64"


def full_parse(data: bytes) -> dict[tuple[str, str], int]:
    """Offsets in bytes of all plain fields of all structs, by reading everything in order."""
    header, at, size, names_at, _ = struct.unpack_from("<5I", data, 4)
    names = data[header + names_at :]

    def name(place: int) -> str:
        return names[place : names.index(b"\0", place)].decode()

    kinds: list[tuple[str, int, list[tuple[int, int, int]]]] = [("", 0, [])]
    position, end = header + at, header + at + size
    while position < end:
        name_at, info, _ = struct.unpack_from("<3I", data, position)
        kind, count = info >> 24 & 31, info & 0xFFFF
        position += 12
        members = []
        if kind in (STRUCT, UNION):
            members = [struct.unpack_from("<3I", data, position + 12 * n) for n in range(count)]
            if info >> 31:
                members = [member for member in members if member[2] < 1 << 24]
        kinds.append((name(name_at), kind, members))
        each = {STRUCT: 12, UNION: 12, ENUM: 8, FUNC_PROTO: 8, DATASEC: 12, ENUM64: 12}
        once = {INT: 4, ARRAY: 12, VAR: 4, DECL_TAG: 4}
        position += each.get(kind, 0) * count + once.get(kind, 0)

    def fields(number: int, start: int) -> dict[str, int]:
        found = {}
        for name_at, type_id, at in kinds[number][2]:
            if name_at:
                found[name(name_at)] = start + at
            else:
                found |= fields(type_id, start + at)
        return found

    return {
        (struct_name, field): at // 8
        for number, (struct_name, kind, _) in enumerate(kinds)
        if kind == STRUCT and struct_name
        for field, at in fields(number, 0).items()
    }
