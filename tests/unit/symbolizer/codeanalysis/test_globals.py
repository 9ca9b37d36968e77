"""Addresses of runtime.allgs, sched and work.cpuStats, in every Go version and build mode."""

from __future__ import annotations

import io
import struct

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from symbolizer import ElfFile, GoBinary, GoTableError
from symbolizer.codeanalysis.globals import (
    allgs_address,
    allp_address,
    cpu_statistics_address,
    scheduler_address,
    scheduling_latencies,
)
from tests.builds import BUILDS, pairs
from tests.unit.symbolizer.elf.elf_writer import without_sections
from tests.unit.symbolizer.go_programs import binary, only, program

# Copies without symbols stand for stripped programs, which tests/kernel has, too.
WITH_SYMBOLS = [build for build in BUILDS if build[1] != "stripped"]
REFUSAL = r"runtime\.forEachG does not load"


def symbol(data: bytes, name: str) -> int:
    table = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    found = table.get_symbol_by_name(name)
    assert found is not None
    return int(found[0]["st_value"])


@pytest.mark.parametrize("build", pairs(*WITH_SYMBOLS))
def test_the_address_of_allgs_equals_its_symbol(build: tuple[str, str]) -> None:
    data = program(*build)
    expected = symbol(data, "runtime.allgs")
    for each in (data, without_sections(data)):
        assert allgs_address(GoBinary.open(ElfFile.from_bytes(each))) == expected


@pytest.mark.parametrize("build", pairs(*WITH_SYMBOLS))
def test_the_address_of_allp_equals_its_symbol(build: tuple[str, str]) -> None:
    data = program(*build)
    expected = symbol(data, "runtime.allp")
    for each in (data, without_sections(data)):
        assert allp_address(GoBinary.open(ElfFile.from_bytes(each))) == expected


@pytest.mark.parametrize("build", pairs(*WITH_SYMBOLS))
def test_the_latencies_are_inside_runtime_sched(build: tuple[str, str]) -> None:
    data = program(*build)
    scheduler = symbol(data, "runtime.sched")
    for each in (data, without_sections(data)):
        found = scheduling_latencies(GoBinary.open(ElfFile.from_bytes(each)))
        assert found is not None
        assert scheduler < found < scheduler + 1000


@pytest.mark.parametrize("build", pairs(*WITH_SYMBOLS))
def test_the_address_of_the_scheduler_equals_its_symbol(build: tuple[str, str]) -> None:
    data = program(*build)
    expected = symbol(data, "runtime.sched")
    for each in (data, without_sections(data)):
        assert scheduler_address(GoBinary.open(ElfFile.from_bytes(each))) == expected


@pytest.mark.parametrize("build", pairs(*WITH_SYMBOLS))
def test_the_cpu_statistics_are_inside_runtime_work(build: tuple[str, str]) -> None:
    data = program(*build)
    work = symbol(data, "runtime.work")
    for each in (data, without_sections(data)):
        found = cpu_statistics_address(GoBinary.open(ElfFile.from_bytes(each)))
        if build[0] in ("1.17", "1.18", "1.19", "1.20"):
            assert found is None
            continue
        assert found is not None
        assert work < found < work + 1000


def loading(first: int, second: int) -> GoBinary:
    """The newest program; its forEachG begins with loads of the words at these addresses."""
    data = bytearray(program())
    entry = only(binary(), "runtime.forEachG").entry
    at = binary().elf.vaddr_to_offset(entry)
    # mov rcx, [rip + ...]; mov rdx, [rip + ...]
    code = b"\x48\x8b\x0d" + struct.pack("<i", first - entry - 7)
    code += b"\x48\x8b\x15" + struct.pack("<i", second - entry - 14)
    data[at : at + len(code)] = code
    return GoBinary.open(ElfFile.from_bytes(bytes(data)))


def test_the_words_of_a_slice_give_its_address() -> None:
    start, _ = data_segment()
    assert allgs_address(loading(start, start + 8)) == start


@pytest.mark.parametrize("second", [-8, 0, 7, 16])
def test_words_of_different_slices_are_refused(second: int) -> None:
    start, _ = data_segment()
    with pytest.raises(GoTableError, match=REFUSAL):
        allgs_address(loading(start + 8, start + 8 + second))


def test_words_that_are_not_data_are_refused() -> None:
    start, end = data_segment()
    assert allgs_address(loading(end - 24, end - 16)) == end - 24
    for address in (start + 4, start - 8, end - 16, end, binary().text_start):
        with pytest.raises(GoTableError, match=REFUSAL):
            allgs_address(loading(address, address + 8))


def test_code_without_loads_is_refused() -> None:
    function = only(binary(), "runtime.forEachG")
    at, size = binary().elf.vaddr_to_offset(function.entry), function.end - function.entry
    data = program()[:at] + b"\x90" * size + program()[at + size :]
    with pytest.raises(GoTableError, match=REFUSAL):
        allgs_address(GoBinary.open(ElfFile.from_bytes(data)))


def data_segment() -> tuple[int, int]:
    (segment,) = [each for each in binary().elf.segments if each.writable]
    return segment.vaddr, segment.vaddr + segment.memsz & ~7
