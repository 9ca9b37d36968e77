"""Unwinding rules from .eh_frame that the tests write: each instruction, odd and corrupt tables."""

from __future__ import annotations

import struct
from typing import Final

import pytest

from symbolizer.elf.file import ElfFile
from symbolizer.errors import SymbolizerError
from symbolizer.unwind.eh_frame import EhFrame
from symbolizer.unwind.rules import RuleKind, RuleRange, UnwindRule
from tests.unit.symbolizer.unwind.eh_writer import (
    CODE_VADDR,
    FRAMES_VADDR,
    HDR_VADDR,
    INITIAL,
    Cie,
    Fde,
    eh_elf,
)
from tests.unit.symbolizer.unwind.test_eh_frame import (
    NONE,
    POPS,
    SYSCALL,
    opened,
    sp,
    with_byte,
)

SP8: Final = UnwindRule(RuleKind.SP, 8)


def ranges(program: bytes, cie: Cie | None = None) -> list[tuple[int, int, UnwindRule]]:
    """The rules of the code that a program is for, counted from its start; 64 bytes."""
    found = opened(eh_elf([Fde(program)], cie)).ranges(CODE_VADDR)
    return [(each.start - CODE_VADDR, each.end - CODE_VADDR, each.rule) for each in found]


PUSHED_BP: Final = b"\x0e\x10\x86\x02"
BP16: Final = UnwindRule(RuleKind.BP, 16, -16)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(b"", [(0, 64, SP8)], id="nothing"),
        pytest.param(b"\x44\x0e\x18", [(0, 4, SP8), (4, 64, sp(24))], id="advance_loc"),
        pytest.param(b"\x02\x05\x0e\x18", [(0, 5, SP8), (5, 64, sp(24))], id="advance_loc1"),
        pytest.param(b"\x03\x05\0\x0e\x18", [(0, 5, SP8), (5, 64, sp(24))], id="advance_loc2"),
        pytest.param(b"\x04\x05\0\0\0\x0e\x18", [(0, 5, SP8), (5, 64, sp(24))], id="advance_loc4"),
        pytest.param(
            b"\x1d\x05\0\0\0\0\0\0\0\x0e\x18", [(0, 5, SP8), (5, 64, sp(24))], id="advance_loc8"
        ),
        pytest.param(b"\x44\x0e\x08\x44", [(0, 64, SP8)], id="the same again"),
        pytest.param(
            b"\x44\x0e\x10\x03\0\2\x0e\x18", [(0, 4, SP8), (4, 64, sp(16))], id="past the end"
        ),
        pytest.param(b"\x7f\x41\x0e\x10", [(0, 64, SP8)], id="to the end"),
        pytest.param(
            b"\x41" + PUSHED_BP + b"\x43\x0d\x06\x70\x0c\x07\x08\xc6",
            [(0, 1, SP8), (1, 4, sp(16, -16)), (4, 52, BP16), (52, 64, SP8)],
            id="frame pointer",
        ),
        pytest.param(
            b"\x0a\x41" + PUSHED_BP + b"\x0d\x06\x43\x0b\x44\x0e\x20",
            [(0, 1, SP8), (1, 4, BP16), (4, 8, SP8), (8, 64, sp(32))],
            id="remember and restore",
        ),
        pytest.param(
            b"\x0a\x0e\x10\x0a\x0e\x20\x41\x0b\x41\x0b",
            [(0, 1, sp(32)), (1, 2, sp(16)), (2, 64, SP8)],
            id="remember twice",
        ),
        pytest.param(b"\x86\x02\x41\x06\x06", [(0, 1, sp(8, -16)), (1, 64, SP8)], id="restore_e"),
        pytest.param(b"\x05\x06\x03", [(0, 64, sp(8, -24))], id="offset_extended"),
        pytest.param(b"\x11\x06\x03", [(0, 64, sp(8, -24))], id="offset_extended_sf"),
        pytest.param(b"\x11\x06\x7d", [(0, 64, sp(8, 24))], id="offset_extended_sf below"),
        pytest.param(b"\x2f\x06\x03", [(0, 64, sp(8, 24))], id="GNU_negative_offset_extended"),
        pytest.param(b"\x12\x06\x7e\x86\x02", [(0, 64, BP16)], id="def_cfa_sf"),
        pytest.param(b"\x13\x7d", [(0, 64, sp(24))], id="def_cfa_offset_sf"),
        pytest.param(b"\x2e\x20\x2d", [(0, 64, SP8)], id="GNU_args_size, GNU_window_save"),
        pytest.param(b"\x86\x02\x41\x08\x06", [(0, 1, sp(8, -16)), (1, 64, SP8)], id="same rbp"),
        pytest.param(b"\x86\x02\x41\x07\x06", [(0, 1, sp(8, -16)), (1, 64, SP8)], id="no rbp"),
        pytest.param(b"\x09\x06\x0c", [(0, 64, NONE)], id="rbp in r12"),
        pytest.param(b"\x14\x06\x02", [(0, 64, NONE)], id="rbp is an address"),
        pytest.param(b"\x15\x06\x02", [(0, 64, NONE)], id="rbp is an address, signed"),
        pytest.param(b"\x16\x06\x02\x76\x08", [(0, 64, NONE)], id="rbp is computed"),
        pytest.param(b"\x16\x06\x02\x76\x00", [(0, 64, NONE)], id="rbp is computed of itself"),
        pytest.param(b"\x10\x06\x02\x77\x08", [(0, 64, NONE)], id="rbp somewhere"),
        pytest.param(b"\x86\x00", [(0, 64, NONE)], id="rbp at the CFA"),
        pytest.param(b"\x83\x02\x8f\x03\x09\x03\x0c", [(0, 64, SP8)], id="other registers"),
        pytest.param(b"\x07\x10", [(0, 64, UnwindRule(RuleKind.END))], id="no caller"),
        pytest.param(b"\x08\x10", [(0, 64, NONE)], id="return address unchanged"),
        pytest.param(b"\x09\x10\x05", [(0, 64, NONE)], id="return address in rdi"),
        pytest.param(b"\x90\x02\x41\xd0", [(0, 1, NONE), (1, 64, SP8)], id="restore rip"),
        pytest.param(b"\x87\x02\x41\xc7", [(0, 1, NONE), (1, 64, SP8)], id="rsp elsewhere"),
        pytest.param(b"\x0d\x0a", [(0, 64, NONE)], id="CFA by r10"),
        pytest.param(b"\x0e\x00", [(0, 64, NONE)], id="returned already"),
        pytest.param(b"\x13\x01", [(0, 64, NONE)], id="negative"),
        pytest.param(b"\x0e\xff\xff\xff\xff\x07", [(0, 64, sp((1 << 31) - 1))], id="huge"),
        pytest.param(b"\x0e\x80\x80\x80\x80\x08", [(0, 64, NONE)], id="too large"),
        pytest.param(b"\x05\x06\xff\xff\xff\xff\x07", [(0, 64, NONE)], id="rbp too far"),
        pytest.param(b"\x0f\x03\x77\x08\x06", [(0, 64, NONE)], id="rsp points"),
        pytest.param(b"\x0f\x03\x76\x78\x06", [(0, 64, NONE)], id="rbp points, nothing of rbp"),
        pytest.param(
            b"\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00\x41\x0c\x07\x08",
            [(0, 1, UnwindRule(RuleKind.BP_POINTS, -8)), (1, 64, SP8)],
            id="realigned stack",
        ),
        pytest.param(
            b"\x0f\x04\x76\x78\x06\x06\x10\x06\x02\x76\x00",
            [(0, 64, NONE)],
            id="rbp points twice",
        ),
        pytest.param(b"\x0f\x00", [(0, 64, NONE)], id="empty expression"),
    ],
)
def test_each_instruction_has_its_rule(
    program: bytes, expected: list[tuple[int, int, UnwindRule]]
) -> None:
    assert ranges(program) == expected


@pytest.mark.parametrize(
    ("cie", "program", "expected"),
    [
        (Cie(code_align=b"\x04"), b"\x42\x0e\x10", [(0, 8, SP8), (8, 64, sp(16))]),
        (Cie(data_align=b"\x7c", initial=b"\x0c\x07\x08\x90\x02"), b"", [(0, 64, SP8)]),
        (Cie(version=3, register=b"\x90\x00"), b"", [(0, 64, SP8)]),
        (Cie(b"zPLR", b"\x9b\1\2\3\4\x0b\x1b"), b"", [(0, 64, SP8)]),
        (Cie(b"zRS"), b"", [(0, 64, UnwindRule(RuleKind.SP, 8, None, True))]),
        (Cie(b"zRS"), b"\x0f\x03\x77\x08\x06", [(0, 64, NONE)]),
        (Cie(b"zRS"), b"\x0f\x04\x77\xa0\x01\x06", [(0, 64, UnwindRule(RuleKind.SIGNAL))]),
        (Cie(b"zR"), b"\x0f\x04\x77\xa0\x01\x06", [(0, 64, NONE)]),
        (
            Cie(initial=INITIAL + b"\x86\x02"),
            b"\x07\x06\x41\xc6",
            [(0, 1, SP8), (1, 64, sp(8, -16))],
        ),
    ],
)
def test_functions_share_the_rules_of_their_cie(
    cie: Cie, program: bytes, expected: list[tuple[int, int, UnwindRule]]
) -> None:
    assert ranges(program, cie) == expected


def test_an_instruction_can_set_the_address() -> None:
    at = len(Cie().build()) + 4 + 4 + 8 + 1 + 1  # of the operand, in .eh_frame
    target = struct.pack("<i", CODE_VADDR + 8 - FRAMES_VADDR - at)
    assert ranges(b"\x01" + target + b"\x0e\x10") == [(0, 8, SP8), (8, 64, sp(16))]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(b"\x17", id="unknown instruction"),
        pytest.param(b"\x0e", id="no operand"),
        pytest.param(b"\x0f\x20\x77", id="cut expression"),
        pytest.param(b"\x0e" + b"\xff" * 12, id="number without end"),
        pytest.param(b"\x0b", id="restore nothing"),
        pytest.param(b"\x0a" * 65, id="remember too much"),
        pytest.param(b"\x0f\x01\x77\x0e\x10", id="offset of an expression"),
        pytest.param(b"\x0f\x01\x77\x0d\x06", id="register of an expression"),
        pytest.param(b"\x41\x01\0\0\0\0", id="back"),
    ],
)
def test_a_corrupt_program_is_an_error(program: bytes) -> None:
    with pytest.raises(SymbolizerError):
        ranges(program)


@pytest.mark.parametrize(
    "cie",
    [
        Cie(version=4),
        Cie(augmentation=b"eh"),
        Cie(augmentation=b"R", initial=INITIAL + bytes(20)),
        Cie(data_size=0x7F),
        Cie(augmentation=b"zRX"),
        Cie(augmentation=b"z" * 20),
        Cie(register=b"\x1e"),
        Cie(data=b"\x3b"),
        Cie(data=b"\x9b"),
        Cie(data=b"\x0f"),
        Cie(data=b""),
        Cie(initial=bytes(1 << 13)),
        Cie(initial=b"\x41\x0b"),
    ],
)
def test_a_corrupt_cie_is_an_error(cie: Cie) -> None:
    with pytest.raises(SymbolizerError):
        ranges(bytes(32), cie)


@pytest.mark.parametrize("has_hdr", [True, False])
def test_each_function_has_its_own_rules(has_hdr: bool) -> None:
    fdes = [Fde(bytes([0x0E, 8 + 8 * i]), CODE_VADDR + 0x100 * i, 0x40) for i in range(9)]
    table = opened(eh_elf(fdes[::2] + fdes[1::2], has_hdr=has_hdr))
    for index, fde in enumerate(fdes):
        (only,) = table.ranges(fde.start)
        assert only == RuleRange(fde.start, fde.start + 0x40, sp(8 + 8 * index))
        assert table.ranges(fde.start + 0x3F) == (only,)
        assert table.ranges(fde.start + 0x40) == table.ranges(fde.start - 1) == ()
    assert table.ranges(0) == table.ranges((1 << 64) - 1) == ()


@pytest.mark.parametrize("has_hdr", [True, False])
def test_the_gap_where_a_thread_begins_has_the_parents_rule(has_hdr: bool) -> None:
    no_caller = b"\x07\x10"  # DW_CFA_undefined: the return address
    starts = (0x00, 0x30, 0x60, 0xC0, 0xF0, 0x120)
    programs = (b"", no_caller, b"", no_caller, b"", b"")
    fdes = [
        Fde(each, CODE_VADDR + start, 0x20) for each, start in zip(programs, starts, strict=True)
    ]
    code = bytearray(0x150)
    for start in starts:
        code[start + 0x20 : start + 0x22] = SYSCALL  # behind each of the functions
    table = opened(eh_elf(fdes, has_hdr=has_hdr, code=bytes(code)))
    (found,) = table.ranges(CODE_VADDR + 0x20)
    assert found == RuleRange(CODE_VADDR + 0x20, CODE_VADDR + 0x30, sp(8))
    assert table.ranges(CODE_VADDR + 0x2F) == (found,)
    # Behind one without a caller, too far away, in front of one with a caller, the last one.
    for vaddr in (0x50, 0x80, 0x110, 0x140):
        assert table.ranges(CODE_VADDR + vaddr) == ()
    for at, other in ((0x20, bytes(2)), (0x30, POPS)):  # padding; the function on its stack
        changed = bytes(code[:at]) + other + bytes(code[at + len(other) :])
        odd = opened(eh_elf(fdes, has_hdr=has_hdr, code=changed))
        assert odd.ranges(CODE_VADDR + 0x20) == ()


def test_a_corrupt_entry_ends_the_scan() -> None:
    table = opened(eh_elf([Fde(b""), Fde(b"", size=-1), Fde(b"", CODE_VADDR * 2)], has_hdr=False))
    assert table.ranges(CODE_VADDR)
    assert table.ranges(CODE_VADDR * 2) == ()


def test_a_table_that_points_outside_the_file_is_an_error() -> None:
    sound = eh_elf([Fde(b"")])
    for position in (4 + 4 + 4 + 4 + 2, 3):  # the entry of the first pair; the encoding
        data = with_byte(sound, HDR_VADDR + position, 0x7F)
        if position == 3:
            data = with_byte(data, HDR_VADDR + 6, 0x7F)
        with pytest.raises(SymbolizerError):
            EhFrame.open(ElfFile.from_bytes(data)) and opened(data).ranges(CODE_VADDR)


def test_a_table_longer_than_the_file_is_an_error() -> None:
    data = eh_elf([Fde(b"")])
    # The number of functions has 8 bytes and the highest value.
    for position, value in ((2, 0x04), *((at, 0xFF) for at in range(8, 16))):
        data = with_byte(data, HDR_VADDR + position, value)
    with pytest.raises(SymbolizerError):
        opened(data).ranges(CODE_VADDR)


def test_a_table_without_a_length_is_ignored() -> None:
    data = with_byte(eh_elf([Fde(b"")]), HDR_VADDR + 2, 0xFF)
    (only,) = opened(data).ranges(CODE_VADDR)
    assert only.rule == SP8
