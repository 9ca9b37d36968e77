"""Corrupt symbol tables, with and without section headers: a typed error or an answer."""

from __future__ import annotations

import subprocess
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbolizer import ElfFile, SymbolizerError
from symbolizer.elf.symbols import SymbolTable

pytestmark = pytest.mark.machine

SOURCE = """
int first(int x) { return x * 3; }
int second(int x) { return first(x) + 1; }
"""
EXTREME = (0, 1, 0x7F, 0xFF, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "two.c").write_text(SOURCE)
    command = ["gcc", "-shared", "-fPIC", "-Wl,--hash-style=both", "-o", "two.so", "two.c"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "two.so").read_bytes()


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_corrupt_tables_raise_nothing_untyped(library: bytes, data: st.DataObject) -> None:
    sound = ElfFile.from_bytes(library)
    tables = [(s.offset, s.size) for n, s in sound.sections.items() if n in (".symtab", ".strtab")]
    content = bytearray(library)
    if data.draw(st.booleans()):
        content[40:48], content[58:64] = bytes(8), bytes(6)  # e_shoff; e_shentsize to e_shstrndx
        names = (".dynsym", ".dynstr", ".dynamic", ".hash", ".gnu.hash")
        tables = [(sound.sections[name].offset, sound.sections[name].size) for name in names]
    for _ in range(data.draw(st.integers(1, 6))):
        offset, size = data.draw(st.sampled_from(tables))
        width = data.draw(st.sampled_from((1, 4, 8)))
        place = offset + data.draw(st.integers(0, max(0, size - width)))
        value = data.draw(st.sampled_from(EXTREME) | st.integers(0, (1 << 64) - 1))
        content[place : place + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    code = sound.sections[".text"]
    with suppress(SymbolizerError):  # a typed error is an answer, too
        table = SymbolTable.open(ElfFile.from_bytes(bytes(content)))
        for vaddr in (*range(code.vaddr, code.vaddr + code.size, 16), 0, 1 << 63, (1 << 64) - 1):
            symbol = table.at(vaddr) if table else None
            if symbol:
                assert symbol.start <= vaddr < symbol.end
                assert symbol.name


def test_the_sound_file_has_names_either_way(library: bytes) -> None:
    bare = library[:40] + bytes(8) + library[48:58] + bytes(6) + library[64:]
    for content in (library, bare):
        table = SymbolTable.open(ElfFile.from_bytes(content))
        assert table is not None
        found = {symbol.name for symbol in map(table.at, range(0x1000, 0x1400)) if symbol}
        assert found >= {"first", "second"}


def test_a_cut_file_raises_nothing_untyped(library: bytes) -> None:
    for size in range(0, len(library), 97):
        with suppress(SymbolizerError):  # a typed error is an answer, too
            SymbolTable.open(ElfFile.from_bytes(library[:size]))
