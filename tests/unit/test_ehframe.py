"""Unwinding rules from .eh_frame: against readelf, and against what running code finds."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from symbolizer.ehframe import EhFrame
from symbolizer.elf import ElfFile
from symbolizer.errors import SymbolizerError
from symbolizer.source import FileSource
from symbolizer.unwind import RuleKind, RuleRange, UnwindRule
from tests.unit.ehwriter import (
    CODE_VADDR,
    FRAMES_VADDR,
    HDR_VADDR,
    INITIAL,
    Cie,
    Fde,
    Function,
    eh_elf,
    readelf_functions,
)
from tests.unit.elfwriter import ElfWriter, Load, Part

SOURCE: Final = Path(__file__).with_name("ehframes.c")
BUILDS: Final = {
    "O0": ("-O0",),
    "O2": ("-O2", "-fomit-frame-pointer"),
    "fp": ("-O2", "-fno-omit-frame-pointer"),
    "cet": ("-O3", "-fcf-protection", "-Wl,-z,ibtplt"),
    "static": ("-O2", "-static"),
    "lazy": ("-O2", "-Wl,-z,lazy"),
}
SYSCALL: Final = b"\x0f\x05"
POPS: Final = b"\x31\xed\x58"  # xor ebp, ebp; pop rax
LIBRARIES: Final = ("libc.so.6", "libstdc++.so.6", "ld-linux-x86-64.so.2")
NONE: Final = UnwindRule(RuleKind.NONE)
SP8: Final = UnwindRule(RuleKind.SP, 8)


def sp(offset: int, bp_offset: int | None = None) -> UnwindRule:
    return UnwindRule(RuleKind.SP, offset, bp_offset)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ehframe")


def built(folder: Path, build: str) -> Path:
    program = folder / build
    if not program.exists():
        subprocess.run(["gcc", *BUILDS[build], "-o", program, SOURCE], check=True)
    return program


def library(name: str) -> Path:
    command = ["gcc", f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return Path(found).resolve(strict=True)


def vdso(folder: Path) -> Path:
    """The vDSO of this process, as a file."""
    path = folder / "vdso"
    (line,) = (
        each for each in Path("/proc/self/maps").read_text().splitlines() if "[vdso]" in each
    )
    start, end = (int(word, 16) for word in line.split()[0].split("-"))
    path.write_bytes(ctypes.string_at(start, end - start))
    return path


def opened(data: bytes) -> EhFrame:
    table = EhFrame.open(ElfFile.from_bytes(data))
    assert table is not None
    return table


def rule_at(table: EhFrame, vaddr: int) -> UnwindRule | None:
    found = [each.rule for each in table.ranges(vaddr) if each.start <= vaddr < each.end]
    assert len(found) <= 1
    return found[0] if found else None


def check_against_readelf(path: Path) -> int:
    """Compare all rules of all functions; returns how many were compared."""
    data = path.read_bytes()
    table, elf = opened(data), ElfFile.from_bytes(data)
    compared, last = 0, None
    for function in sorted(readelf_functions(path), key=lambda each: each.start):
        if last is not None and last.end < function.start:
            between = gap(elf, last, function)
            assert table.ranges(last.end) == table.ranges(function.start - 1) == between
        last = function
        found = table.ranges(function.start)
        for before, after in pairwise(found):
            assert before.end <= after.start
        for row in function.rows:
            expected = row.rule()
            if expected is None or row.start == row.end:
                continue
            over = [each for each in found if each.start < row.end and row.start < each.end]
            assert [each.rule for each in over] == [expected], hex(row.start)
            assert over[0].start <= row.start
            assert row.end <= over[0].end
            assert rule_at(table, row.end - 1) == expected
            compared += 1
        assert found[0].start == function.start
        assert found[-1].end <= function.end
    return compared


def gap(elf: ElfFile, before: Function, after: Function) -> tuple[RuleRange, ...]:
    """The rules between two functions: none, unless that is where a thread begins."""
    rules = [before.rows[-1].rule(), after.rows[0].rule()]
    if rules != [sp(8), UnwindRule(RuleKind.END)] or elf.read(before.end, 2) != SYSCALL:
        return ()
    if elf.read(after.start, 3) == POPS:
        return ()
    return (RuleRange(before.end, after.start, sp(8)),)


def test_in_libc_a_thread_begins_at_one_place() -> None:
    path = library("libc.so.6")
    elf = ElfFile.from_bytes(path.read_bytes())
    functions = sorted(readelf_functions(path), key=lambda each: each.start)
    gaps = (gap(elf, *pair) for pair in pairwise(functions) if pair[0].end < pair[1].start)
    assert len([each for each in gaps if each]) == 1  # clone3


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_librarys_rules_are_those_that_readelf_tells(name: str) -> None:
    assert check_against_readelf(library(name)) > 2000


@pytest.mark.parametrize("build", BUILDS)
def test_a_programs_rules_are_those_that_readelf_tells(folder: Path, build: str) -> None:
    assert check_against_readelf(built(folder, build)) > (5000 if build == "static" else 20)


def test_the_rules_of_the_vdso_are_those_that_readelf_tells(folder: Path) -> None:
    assert check_against_readelf(vdso(folder)) > 10


@pytest.mark.parametrize("build", BUILDS)
def test_the_rules_lead_to_the_caller_in_a_program_that_runs(folder: Path, build: str) -> None:
    program = built(folder, build)
    table = opened(program.read_bytes())
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    kinds = {}
    with ElfFile.open(program) as elf:
        base = 0 if elf.is_pie else min(segment.vaddr for segment in elf.segments)
    for line in output.splitlines():
        name, *numbers = line.split()
        pc, stack, bp, cfa, to, bp_of_caller, *words = (int(number, 16) for number in numbers)
        memory = {stack + 8 * index: word for index, word in enumerate(words)}
        rule = rule_at(table, pc + base)
        assert rule is not None
        kinds[name] = rule.kind
        at = (stack if rule.kind is RuleKind.SP else bp) + rule.cfa_offset
        if rule.kind is RuleKind.BP_POINTS:
            found, found_bp = memory[at], memory[bp]
        else:
            found = at
            found_bp = bp if rule.bp_offset is None else memory[at + rule.bp_offset]
        assert (found, memory[found - 8], found_bp) == (cfa, to, bp_of_caller), name
    has_bp = build in ("O0", "fp")
    usual = RuleKind.BP if has_bp else RuleKind.SP
    assert kinds == {
        "plain": usual,
        "many": usual,
        "pushes": usual,
        "grows": RuleKind.BP,
        "realigned": RuleKind.BP_POINTS,
    }


@pytest.mark.parametrize("build", BUILDS)
def test_nobody_calls_start(folder: Path, build: str) -> None:
    data = built(folder, build).read_bytes()
    assert rule_at(opened(data), ElfFile.from_bytes(data).entry) == UnwindRule(RuleKind.END)


PLT_CFA: Final = b"\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"


def plt(elf: ElfFile, name: str) -> range:
    section = elf.sections[name]
    return range(section.vaddr, section.vaddr + section.size)


@pytest.mark.parametrize("build", ["lazy", "cet"])
def test_in_a_plt_the_stack_depends_on_the_address(folder: Path, build: str) -> None:
    data = built(folder, build).read_bytes()
    table = opened(data)
    code = plt(ElfFile.from_bytes(data), ".plt")
    assert len(code) >= 48
    # A call of the linker pushes its arguments: the number of the entry at the end of one; the
    # first entry, which the others jump to, has another argument to push.
    pushed = 11 if build == "lazy" else 9
    for vaddr in code[16:]:
        assert rule_at(table, vaddr) == sp(16 if vaddr % 16 >= pushed else 8)
    for vaddr in code[:16]:
        assert rule_at(table, vaddr) == sp(24 if vaddr % 16 >= 6 else 16)


def test_of_a_large_plt_only_one_entry_is_told() -> None:
    plt_program = b"\x0f" + bytes([len(PLT_CFA)]) + PLT_CFA
    table = opened(eh_elf([Fde(plt_program, CODE_VADDR + 8, 1 << 30)]))
    far = CODE_VADDR + (1 << 29)
    assert table.ranges(far + 3) == (
        RuleRange(far, far + 11, sp(8)),
        RuleRange(far + 11, far + 16, sp(16)),
    )
    first = CODE_VADDR + 8
    assert table.ranges(first)[0] == RuleRange(first, first + 3, sp(8))
    last = CODE_VADDR + 8 + (1 << 30) - 1
    assert table.ranges(last) == (RuleRange(last - 7, last + 1, sp(8)),)


@pytest.mark.parametrize("name", ["libc.so.6", "static"])
def test_the_return_from_a_signal_leads_to_who_was_interrupted(folder: Path, name: str) -> None:
    path = built(folder, name) if name in BUILDS else library(name)
    data = path.read_bytes()
    # mov $15, %rax; syscall: rt_sigreturn.
    offset = data.index(b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05")
    with ElfFile.from_bytes(data) as elf:
        (vaddr,) = (
            each.vaddr + offset - each.offset
            for each in elf.segments
            if each.offset <= offset < each.offset + each.filesz
        )
    # It is returned to, so that the address before it counts.
    for each in range(vaddr - 1, vaddr + 9):
        assert rule_at(opened(data), each) == UnwindRule(RuleKind.SIGNAL)


def without_section_headers(data: bytes) -> bytes:
    return data[:40] + bytes(8) + data[48:58] + bytes(6) + data[64:]


def with_byte(data: bytes, vaddr: int, value: int) -> bytes:
    offset = ElfFile.from_bytes(data).vaddr_to_offset(vaddr)
    return data[:offset] + bytes([value]) + data[offset + 1 :]


@pytest.mark.parametrize("changed_byte", [0, 2, 3])
def test_without_a_usable_table_all_entries_are_read(changed_byte: int) -> None:
    data = library("libc.so.6").read_bytes()
    elf = ElfFile.from_bytes(data)
    whole, hdr = opened(data), elf.sections[".eh_frame_hdr"]
    # A table that would lead astray whoever used it.
    pairs = hdr.offset + 12
    astray = data[:pairs] + bytes(hdr.size - 12) + data[hdr.offset + hdr.size :]
    scanning = opened(with_byte(astray, hdr.vaddr + changed_byte, 0xFF))
    text = elf.sections[".text"]
    vaddrs = range(text.vaddr, text.vaddr + text.size, 997)
    assert len(vaddrs) > 1000
    for vaddr in vaddrs:
        assert scanning.ranges(vaddr) == whole.ranges(vaddr)


def test_the_tables_are_found_without_section_headers() -> None:
    data = library("libc.so.6").read_bytes()
    whole, bare = opened(data), opened(without_section_headers(data))
    text = ElfFile.from_bytes(data).sections[".text"]
    for vaddr in range(text.vaddr, text.vaddr + text.size, 4999):
        assert bare.ranges(vaddr) == whole.ranges(vaddr)
    hdr = ElfFile.from_bytes(data).sections[".eh_frame_hdr"].vaddr
    scanning = opened(without_section_headers(with_byte(data, hdr + 3, 0xFF)))
    assert scanning.ranges(text.vaddr) == whole.ranges(text.vaddr)


class CountedSource(FileSource):
    """A file that counts what is read of it."""

    read_bytes = 0

    def read(self, offset: int, size: int) -> bytes:
        self.read_bytes += size
        return super().read(offset, size)


def test_only_what_is_asked_for_is_read() -> None:
    source = CountedSource(library("libc.so.6"))
    with ElfFile(source) as elf:
        text = elf.sections[".text"]
        source.read_bytes = 0
        table = EhFrame.open(elf)
        assert table is not None
        assert table.ranges(text.vaddr + text.size // 2)
    assert 0 < source.read_bytes < 4096


def test_a_file_without_tables_has_none(folder: Path) -> None:
    assert EhFrame.open(ElfFile.from_bytes(ElfWriter([Load(0, b"code")]).build())) is None
    debug = folder / "debug"
    program = built(folder, "O2")
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    with ElfFile.open(debug) as elf:
        assert elf.sections[".eh_frame"].nobits
        assert EhFrame.open(elf) is None
    relocatable = Part(".eh_frame", 0, 8, bytes(8))
    file = ElfWriter([Load(FRAMES_VADDR, b"code")], [relocatable]).build()
    assert EhFrame.open(ElfFile.from_bytes(file)) is None


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
        pytest.param(b"\x07\x10", [(0, 64, UnwindRule(RuleKind.END))], id="nobody called"),
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
def test_each_instruction(program: bytes, expected: list[tuple[int, int, UnwindRule]]) -> None:
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
def test_what_functions_have_in_common(
    cie: Cie, program: bytes, expected: list[tuple[int, int, UnwindRule]]
) -> None:
    assert ranges(program, cie) == expected


def test_an_instruction_names_the_address_itself() -> None:
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
def test_where_a_thread_begins_who_started_it_is_the_caller(has_hdr: bool) -> None:
    nobody = b"\x07\x10"  # DW_CFA_undefined: the return address
    starts = (0x00, 0x30, 0x60, 0xC0, 0xF0, 0x120)
    programs = (b"", nobody, b"", nobody, b"", b"")
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
    # Behind one that nobody calls, too far away, in front of one that somebody calls, the last one.
    for vaddr in (0x50, 0x80, 0x110, 0x140):
        assert table.ranges(CODE_VADDR + vaddr) == ()
    for at, other in ((0x20, bytes(2)), (0x30, POPS)):  # padding; the function on its stack
        changed = bytes(code[:at]) + other + bytes(code[at + len(other) :])
        odd = opened(eh_elf(fdes, has_hdr=has_hdr, code=changed))
        assert odd.ranges(CODE_VADDR + 0x20) == ()


def test_a_corrupt_entry_ends_the_search_through_all() -> None:
    table = opened(eh_elf([Fde(b""), Fde(b"", size=-1), Fde(b"", CODE_VADDR * 2)], has_hdr=False))
    assert table.ranges(CODE_VADDR)
    assert table.ranges(CODE_VADDR * 2) == ()


def test_a_table_that_leads_nowhere_is_an_error() -> None:
    sound = eh_elf([Fde(b"")])
    for position in (4 + 4 + 4 + 4 + 2, 3):  # the entry of the first pair; the encoding
        data = with_byte(sound, HDR_VADDR + position, 0x7F)
        if position == 3:
            data = with_byte(data, HDR_VADDR + 6, 0x7F)
        with pytest.raises(SymbolizerError):
            EhFrame.open(ElfFile.from_bytes(data)) and opened(data).ranges(CODE_VADDR)


def test_a_table_of_any_length_ends_with_the_file() -> None:
    data = eh_elf([Fde(b"")])
    # The number of functions takes 8 bytes, and is as high as can be.
    for position, value in ((2, 0x04), *((at, 0xFF) for at in range(8, 16))):
        data = with_byte(data, HDR_VADDR + position, value)
    with pytest.raises(SymbolizerError):
        opened(data).ranges(CODE_VADDR)


def test_a_table_without_a_length_is_none() -> None:
    data = with_byte(eh_elf([Fde(b"")]), HDR_VADDR + 2, 0xFF)
    (only,) = opened(data).ranges(CODE_VADDR)
    assert only.rule == SP8
