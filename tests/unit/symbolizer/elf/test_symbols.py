"""Symbol tables: labels, aliases, functions in functions, versions, files without sections."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from symbolizer import ElfFile
from symbolizer.elf.symbols import SymbolTable, _dynamic_tables
from symbolizer.errors import ElfError
from tests.unit.symbolizer.elf.elf_writer import PF_R, PF_X, ElfWriter, Load, Part, without_sections

pytestmark = pytest.mark.machine

SOURCE = """
asm(".text\\n"
    ".globl label\\n" "label: nop\\n" ".fill 20, 1, 0x90\\n"
    ".globl sized\\n" ".type sized, @function\\n" "sized: nop\\n" "nop\\n"
    "inside: nop\\n" ".fill 5, 1, 0x90\\n" ".size sized, . - sized\\n"
    ".fill 16, 1, 0x90\\n");
__attribute__((noinline)) static int private_one(int x) { return x * 3; }
int public_one(int x) { return private_one(x) + 1; }
extern int weak_one(int) __attribute__((weak, alias("public_one")));
static int local_one(int) __attribute__((used, alias("public_one")));
int table[4] = {1};
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("symbols")
    (folder / "one.c").write_text(SOURCE)
    (folder / "map").write_text("V_1 { global: *; };")
    command = ["gcc", "-O1", "-fPIC", "-shared", "-Wl,--version-script,map", "-o", "one.so"]
    subprocess.run([*command, "one.c"], cwd=folder, check=True)
    return folder / "one.so"


@pytest.fixture
def elf(library: Path) -> Iterator[ElfFile]:
    with ElfFile.open(library) as file:
        yield file


def addresses(library: Path, *options: str) -> dict[str, int]:
    command = ["nm", "--defined-only", *options, str(library)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[2].split("@")[0]: int(line.split()[0], 16) for line in lines}


def opened(elf: ElfFile) -> SymbolTable:
    table = SymbolTable.open(elf)
    assert table is not None
    return table


def name_at(table: SymbolTable, vaddr: int) -> str | None:
    symbol = table.at(vaddr)
    return symbol.name if symbol else None


def test_a_symbol_without_a_size_extends_to_the_next_one(library: Path, elf: ElfFile) -> None:
    at = addresses(library)
    symbol = opened(elf).at(at["label"] + 20)
    assert symbol is not None
    assert (symbol.name, symbol.start, symbol.end) == ("label", at["label"], at["sized"])


def test_a_symbol_without_a_size_inside_a_function_is_ignored(library: Path, elf: ElfFile) -> None:
    at = addresses(library)
    table = opened(elf)
    assert at["sized"] < at["inside"]
    assert [name_at(table, at["sized"] + offset) for offset in (0, 2, 7)] == ["sized"] * 3
    assert name_at(table, at["sized"] + 8) is None


def test_the_global_name_is_preferred(library: Path, elf: ElfFile) -> None:
    at = addresses(library)
    assert at["weak_one"] == at["local_one"] == at["public_one"]
    assert name_at(opened(elf), at["public_one"]) == "public_one"
    assert name_at(opened(elf), at["private_one"]) == "private_one"


def test_data_is_left_out(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", str(stripped), str(library)], check=True)
    at = addresses(library, "--dynamic")
    with ElfFile.open(stripped) as elf:
        table = opened(elf)
        assert name_at(table, at["public_one"]) == "public_one"
        assert name_at(table, at["table"]) is None


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_a_file_without_sections_has_the_names_that_it_exports(
    library: Path, tmp_path: Path, style: str
) -> None:
    path = tmp_path / "one.so"
    command = ["gcc", "-O1", "-fPIC", "-shared", f"-Wl,--hash-style={style}", "-o", str(path)]
    subprocess.run([*command, str(library.parent / "one.c")], check=True)
    exported = addresses(path, "--dynamic")
    elf = ElfFile.from_bytes(without_sections(path.read_bytes()))
    assert not elf.sections
    with ElfFile.open(path) as whole:
        wanted = whole.sections[".dynsym"], whole.sections[".dynstr"]
    found = _dynamic_tables(elf)
    assert found is not None
    assert [(s.offset, s.size) for s in found] == [(s.offset, s.size) for s in wanted]
    table = opened(elf)
    assert exported.keys() >= {"label", "sized", "public_one", "weak_one"}
    for name in ("label", "sized", "public_one"):
        assert name_at(table, exported[name]) == name
    assert name_at(table, exported["table"]) is None


def test_a_corrupt_hash_table_is_refused(library: Path) -> None:
    data = bytearray(without_sections(library.read_bytes()))
    with ElfFile.open(library) as elf:
        hashes = elf.sections[".gnu.hash"].offset
    data[hashes : hashes + 4] = struct.pack("<I", 1 << 31)
    with pytest.raises(ElfError, match="claims 2147483648 entries"):
        SymbolTable.open(ElfFile.from_bytes(bytes(data)))


def written(*symbols: tuple[int, int]) -> SymbolTable:
    """The table of a made-up file: (start, size) of functions f0@@V_1, f1@@V_1, ..."""
    names = b"\0" + b"".join(b"f%d@@V_1\0" % number for number in range(len(symbols)))
    rows = bytes(24)
    for number, (start, size) in enumerate(symbols):
        rows += struct.pack("<IBBHQQ", names.index(b"f%d@" % number), 0x12, 0, 1, start, size)
    code = Load(0x1000, bytes(0x1000), PF_R | PF_X)
    parts = [Part(".symtab", data=rows), Part(".strtab", data=names)]
    return opened(ElfFile.from_bytes(ElfWriter(segments=[code], sections=parts).build()))


def test_an_inner_symbol_hides_the_outer_one_only_inside() -> None:
    table = written((0x1000, 0x100), (0x1010, 0x10), (0x1018, 2), (0x1200, 8))
    found = {
        at: name_at(table, at) for at in (0x100F, 0x1010, 0x1018, 0x101A, 0x1020, 0x10FF, 0x1100)
    }
    assert found == {
        **{0x100F: "f0", 0x1010: "f1", 0x1018: "f2", 0x101A: "f1", 0x1020: "f0", 0x10FF: "f0"},
        0x1100: None,
    }


def test_sizes_are_cut_at_the_end_of_the_address_space() -> None:
    table = written((0x1000, (1 << 64) - 1), (0x1010, 4), (0x1020, 0))
    assert name_at(table, 0x1010) == "f1"
    assert name_at(table, 0x1020) == "f0"
    assert name_at(table, (1 << 64) - 2) == "f0"
