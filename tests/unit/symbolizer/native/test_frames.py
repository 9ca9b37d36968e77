"""Frames of native code: lines and inlined calls together with the names of symbols."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from symbolizer import ElfFile
from symbolizer.frames import FuncRole
from symbolizer.native.binary import NativeBinary

pytestmark = pytest.mark.machine

SOURCE = """namespace shop { namespace {
inline __attribute__((always_inline)) int twice(volatile int *x) {
    return *x * 2;
}
__attribute__((noinline)) int hidden(volatile int *x) {
    return twice(x) + 1;
}
} }
int main(int argc, char **) {
    volatile int x = argc;
    return shop::hidden(&x);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    (folder / "shop.cc").write_text(SOURCE)
    command = ["g++", "-g", "-O1", "-o", "shop", "shop.cc"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "shop"


@pytest.fixture
def elf(program: Path) -> Iterator[ElfFile]:
    with ElfFile.open(program) as file:
        yield file


def extent(program: Path, name: str) -> range:
    command = ["nm", "--print-size", "--demangle", str(program)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    (row,) = (line.split(" ", 3) for line in lines if line.endswith(f" {name}"))
    return range(int(row[0], 16), int(row[0], 16) + int(row[1], 16))


def test_lines_and_inlined_calls_equal_addr2lines(program: Path, elf: ElfFile) -> None:
    vaddrs = extent(program, "shop::(anonymous namespace)::hidden(int volatile*)")
    command = ["addr2line", "-a", "-i", "-e", str(program), *map(hex, vaddrs)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wanted: dict[int, list[str]] = {}
    for line in listing.splitlines():
        if line.startswith("0x"):
            wanted[int(line, 16)] = []
        else:
            wanted[next(reversed(wanted))].append(line.split(" (disc")[0])
    native = NativeBinary(elf)
    frames = native.frames_many(vaddrs)
    assert {v: [f"{f.file}:{f.line}" for f in frames[v]] for v in vaddrs} == wanted
    assert {len(frame) for frame in frames.values()} == {1, 2}
    assert native.failure is None


def test_names_have_their_namespace_where_dwarf_has_none(program: Path, elf: ElfFile) -> None:
    name = "shop::(anonymous namespace)::hidden(int volatile*)"
    vaddrs = extent(program, name)
    for vaddr, frames in NativeBinary(elf).frames_many(vaddrs).items():
        assert frames[-1].function == name
        assert frames[-1].start_line == 5
        assert {(frame.pc, frame.role) for frame in frames} == {(vaddr, FuncRole.NORMAL)}
        assert [frame.function.rpartition("::")[2].partition("(")[0] for frame in frames[:-1]] in (
            [],
            ["twice"],
        )


def test_broken_dwarf_loses_no_names(program: Path) -> None:
    with ElfFile.open(program) as whole:
        table = whole.sections[".debug_abbrev"]
    content = bytearray(program.read_bytes())
    content[table.offset : table.offset + table.size] = b"\xff" * table.size
    native = NativeBinary(ElfFile.from_bytes(bytes(content)))
    vaddr = extent(program, "main").start
    (frame,) = native.frames_many([vaddr])[vaddr]
    assert (frame.function, frame.file, frame.line) == ("main", "", 0)
    assert native.failure is not None


def test_a_broken_debug_file_loses_no_names_of_its_file(program: Path, tmp_path: Path) -> None:
    stripped, debug = tmp_path / "stripped", tmp_path / "debug"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-o", str(stripped), "-s", "-"]
    subprocess.run(command, input=b"int shown(void) { return 1; }", check=True)
    subprocess.run(["objcopy", "--only-keep-debug", str(program), str(debug)], check=True)
    content = bytearray(debug.read_bytes())
    claimed = 24 * 4_100_000
    headers = int.from_bytes(content[40:48], "little")
    for at in range(headers, len(content), 64):
        if int.from_bytes(content[at + 4 : at + 8], "little") == 2:  # sh_type SHT_SYMTAB
            content[at + 24 : at + 40] = bytes(8) + claimed.to_bytes(8, "little")
    content += bytes(claimed)
    with ElfFile.open(stripped) as elf:
        command = ["nm", "--dynamic", str(stripped)]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        (vaddr,) = (int(line.split()[0], 16) for line in listing.splitlines() if "shown" in line)
        native = NativeBinary(elf, ElfFile.from_bytes(bytes(content)))
        (frame,) = native.frames_many([vaddr])[vaddr]
        assert frame.function == "shown"
        assert "claims" in str(native.failure)
