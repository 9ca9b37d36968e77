"""Lines and inlined calls of C and C++ programs, compared with llvm-symbolizer."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from symbolizer import ElfFile
from symbolizer.dwarf.sections import dwarf_section
from symbolizer.native.lines import NativeFrame, NativeLines
from tests.builds import in_full
from tests.unit.symbolizer.elf.elf_writer import ElfWriter, Load
from tests.unit.symbolizer.native.native_programs import LANGUAGES, native_program

MAKES: Final = tuple((language, version) for language in LANGUAGES for version in (2, 3, 4, 5))
WAYS: Final = (
    "",
    "-gz=zlib",
    "-ffunction-sections -Wl,--gc-sections",
    "-flto",
    "-gno-as-loc-support",
)


def code(elf: ElfFile) -> range:
    text = elf.sections[".text"]
    return range(text.vaddr, text.vaddr + text.size)


@cache
def said(program: Path) -> dict[int, tuple[NativeFrame, ...]]:
    """The answer of llvm-symbolizer for each byte of code; () where it has no line."""
    with ElfFile.open(program) as elf:
        addresses = code(elf)
    run = subprocess.run(
        ["llvm-symbolizer", f"--obj={program}", "--output-style=JSON", "--no-demangle"],
        input="".join(f"{address:#x}\n" for address in addresses),
        check=True,
        capture_output=True,
        text=True,
    )
    answers: dict[int, tuple[NativeFrame, ...]] = {}
    for address, line in zip(addresses, run.stdout.splitlines(), strict=True):
        frames = [
            NativeFrame(load["FunctionName"], load["FileName"], load["Line"], load["StartLine"])
            for load in json.loads(line)["Symbol"]
        ]
        answers[address] = tuple(frames) if any(frame.line for frame in frames) else ()
    return answers


def same_name(found: str, symbol: str) -> bool:
    """Whether a physical function's name is that of its symbol, which llvm-symbolizer shows.

    A part of f has the symbol f.cold. gcc gives what has a lambda's type no linkage name.
    """
    if found.startswith("_Z") or "<" not in found:
        return found == symbol.partition(".")[0]
    return f"{len(found.partition('<')[0])}{found.partition('<')[0]}" in symbol


def check(program: Path) -> None:
    expected = said(program)
    with ElfFile.open(program) as elf:
        lines = NativeLines.open(elf)
        assert lines is not None
        found = lines.frames(code(elf))
    assert lines.failure is None
    assert found.keys() == expected.keys()
    assert max(map(len, found.values())) > 2
    assert sum(map(bool, found.values())) > 300
    for address, frames in found.items():
        assert frames[:-1] == expected[address][:-1], hex(address)
        for ours, theirs in zip(frames[-1:], expected[address][-1:], strict=True):
            assert same_name(ours.function, theirs.function), hex(address)
            assert replace(ours, function=theirs.function) == theirs, hex(address)


@pytest.mark.full
@pytest.mark.parametrize(("language", "version"), MAKES)
def test_lines_of_every_byte_equal_llvm_symbolizers(
    tmp_path: Path, language: str, version: int
) -> None:
    check(native_program(tmp_path, language, f"-gdwarf-{version}"))


@pytest.mark.full
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("way", WAYS)
def test_lines_of_other_builds_equal_llvm_symbolizers(
    tmp_path: Path, language: str, way: str
) -> None:
    check(native_program(tmp_path, language, "-g", *way.split()))


@pytest.mark.machine
@pytest.mark.parametrize("version", [*in_full(4), 5])
def test_units_without_aranges_are_found(tmp_path: Path, version: int) -> None:
    """clang, rustc and Go write no .debug_aranges."""
    program = native_program(tmp_path, "c++", f"-gdwarf-{version}")
    subprocess.run(["objcopy", "--remove-section=.debug_aranges", program], check=True)
    check(program)


@pytest.mark.machine
def test_only_the_needed_units_are_read(tmp_path: Path) -> None:
    with ElfFile.open(native_program(tmp_path, "c++", "-g")) as elf:
        lines = NativeLines.open(elf)
        assert lines is not None
        known = sorted(address for address, frames in lines.frames(code(elf)).items() if frames)
        all_bytes = lines.decoded_bytes
        again = NativeLines.open(elf)
        assert again is not None
        assert again.frames([known[0]])[known[0]]
        assert 0 < again.decoded_bytes < all_bytes < len(dwarf_section(elf, "debug_line"))


@pytest.mark.machine
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_answer_does_not_depend_on_other_addresses(tmp_path: Path, language: str) -> None:
    """Nor for a function inside another one, which a walk for the outer one jumps over."""
    with ElfFile.open(native_program(tmp_path, language, "-g")) as elf:
        lines = NativeLines.open(elf)
        assert lines is not None
        together = lines.frames(code(elf))
        for address in code(elf)[::7]:
            assert lines.frames([address]) == {address: together[address]}


@pytest.mark.machine
def test_addresses_outside_of_the_code(tmp_path: Path) -> None:
    nowhere = [0, 1, 2, (1 << 64) - 1]
    with ElfFile.open(native_program(tmp_path, "c", "-g")) as elf:
        lines = NativeLines.open(elf)
        assert lines is not None
        assert lines.frames(nowhere) == dict.fromkeys(nowhere, ())


def test_a_file_without_dwarf() -> None:
    elf = ElfFile.from_bytes(ElfWriter([Load(0x1000, bytes(16))], []).build())
    assert NativeLines.open(elf) is None
