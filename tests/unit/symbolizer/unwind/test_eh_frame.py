"""Unwinding rules from .eh_frame, compared with readelf and with the stack of running code."""

from __future__ import annotations

import ctypes
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from symbolizer.elf.file import ElfFile
from symbolizer.elf.source import FileSource
from symbolizer.unwind.eh_frame import EhFrame
from symbolizer.unwind.rules import RuleKind, RuleRange, UnwindRule
from tests.unit.symbolizer.elf.elf_writer import ElfWriter, Load, Part, without_sections
from tests.unit.symbolizer.unwind.eh_writer import (
    CODE_VADDR,
    FRAMES_VADDR,
    Fde,
    Function,
    eh_elf,
    readelf_functions,
)

pytestmark = pytest.mark.machine

SOURCE: Final = Path(__file__).with_name("eh_frames.c")
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
RETURN_FROM_SIGNAL: Final = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"  # mov rax, 15; syscall
LIBRARIES: Final = ("libc.so.6", "libstdc++.so.6", "ld-linux-x86-64.so.2")
NONE: Final = UnwindRule(RuleKind.NONE)


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
        splitline
        for splitline in Path("/proc/self/maps").read_text().splitlines()
        if "[vdso]" in splitline
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
            between = behind = gap(elf, last, function)
            if elf.read(last.end - len(RETURN_FROM_SIGNAL), len(RETURN_FROM_SIGNAL)) == (
                RETURN_FROM_SIGNAL
            ):
                behind = (RuleRange(last.end, last.end + 1, UnwindRule(RuleKind.SIGNAL)),)
            assert table.ranges(last.end) == behind
            assert table.ranges(function.start - 1) == between
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
    """The rules between two functions: none, except where a thread begins."""
    rules = [before.rows[-1].rule(), after.rows[0].rule()]
    if rules != [sp(8), UnwindRule(RuleKind.END)] or elf.read(before.end, 2) != SYSCALL:
        return ()
    if elf.read(after.start, 3) == POPS:
        return ()
    return (RuleRange(before.end, after.start, sp(8)),)


def test_libc_has_one_gap_where_a_thread_begins() -> None:
    path = library("libc.so.6")
    elf = ElfFile.from_bytes(path.read_bytes())
    functions = sorted(readelf_functions(path), key=lambda function: function.start)
    gaps = (gap(elf, *pair) for pair in pairwise(functions) if pair[0].end < pair[1].start)
    assert len([each for each in gaps if each]) == 1  # clone3


def test_the_byte_behind_a_signals_trampoline_has_its_rule() -> None:
    elf = ElfFile.from_bytes(library("libc.so.6").read_bytes())
    table = EhFrame.open(elf)
    assert table
    segment = next(each for each in elf.segments if each.executable)
    code = elf.read(segment.vaddr, segment.filesz)
    at = segment.vaddr + code.index(RETURN_FROM_SIGNAL)
    end = at + len(RETURN_FROM_SIGNAL)
    signal = UnwindRule(RuleKind.SIGNAL)
    assert rule_at(table, at) == rule_at(table, end) == signal
    assert table.ranges(end) == (RuleRange(end, end + 1, signal),)
    assert table.ranges(end + 1) == ()


@pytest.mark.full
@pytest.mark.parametrize("name", LIBRARIES)
def test_rules_of_libraries_equal_readelfs(name: str) -> None:
    assert check_against_readelf(library(name)) > 2000


@pytest.mark.parametrize("build", BUILDS)
def test_rules_of_programs_equal_readelfs(folder: Path, build: str) -> None:
    assert check_against_readelf(built(folder, build)) > (5000 if build == "static" else 20)


def test_rules_of_the_vdso_equal_readelfs(folder: Path) -> None:
    assert check_against_readelf(vdso(folder)) > 10


@pytest.mark.parametrize("build", BUILDS)
def test_the_rules_lead_to_the_caller_in_a_running_program(folder: Path, build: str) -> None:
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
def test_start_has_no_caller(folder: Path, build: str) -> None:
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


def test_rules_of_a_large_plt_repeat_those_of_an_entry() -> None:
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
def test_a_signals_trampoline_leads_to_the_interrupted_code(folder: Path, name: str) -> None:
    path = built(folder, name) if name in BUILDS else library(name)
    data = path.read_bytes()
    # mov $15, %rax; syscall: rt_sigreturn.
    offset = data.index(b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05")
    with ElfFile.from_bytes(data) as elf:
        (vaddr,) = (
            segment.vaddr + offset - segment.offset
            for segment in elf.segments
            if segment.offset <= offset < segment.offset + segment.filesz
        )
    # It is a return address, so the address before it is looked up.
    for each in range(vaddr - 1, vaddr + 9):
        assert rule_at(opened(data), each) == UnwindRule(RuleKind.SIGNAL)


def with_byte(data: bytes, vaddr: int, value: int) -> bytes:
    offset = ElfFile.from_bytes(data).vaddr_to_offset(vaddr)
    return data[:offset] + bytes([value]) + data[offset + 1 :]


@pytest.mark.parametrize("changed_byte", [0, 2, 3])
def test_without_a_usable_table_all_entries_are_read(changed_byte: int) -> None:
    data = library("libc.so.6").read_bytes()
    elf = ElfFile.from_bytes(data)
    whole, hdr = opened(data), elf.sections[".eh_frame_hdr"]
    # A table with wrong entries, which must not be used.
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
    whole, bare = opened(data), opened(without_sections(data))
    text = ElfFile.from_bytes(data).sections[".text"]
    for vaddr in range(text.vaddr, text.vaddr + text.size, 4999):
        assert bare.ranges(vaddr) == whole.ranges(vaddr)
    hdr = ElfFile.from_bytes(data).sections[".eh_frame_hdr"].vaddr
    scanning = opened(without_sections(with_byte(data, hdr + 3, 0xFF)))
    assert scanning.ranges(text.vaddr) == whole.ranges(text.vaddr)


class CountedSource(FileSource):
    """A file that counts the bytes that are read."""

    read_bytes = 0

    def read(self, offset: int, size: int) -> bytes:
        self.read_bytes += size
        return super().read(offset, size)


def test_only_the_needed_entries_are_read() -> None:
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
