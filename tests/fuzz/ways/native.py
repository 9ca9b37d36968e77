"""Ways in through native files: ELF headers, symbols, unwind tables, DWARF, debug files."""

from __future__ import annotations

import atexit
import os
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from unittest import mock

from ebpfprof.process.debug_files import DebugFiles, DoesNotFitError, _debug_link
from ebpfprof.process.file_opener import FileOpener
from ebpfprof.process.mappings import bias_of
from ebpfprof.process.process import MapsLine
from symbolizer import ElfError, ElfFile
from symbolizer.elf.symbols import SymbolTable
from symbolizer.native import demangle
from symbolizer.native.binary import NativeBinary
from symbolizer.native.demangle import Demangler, demangled
from symbolizer.native.lines import NativeFrame, NativeLines
from symbolizer.unwind.eh_frame import EhFrame
from tests.fuzz.driver import Parser
from tests.fuzz.elfs import (
    PF_R,
    PF_W,
    PF_X,
    PT_DYNAMIC,
    SHT_DYNSYM,
    SHT_SYMTAB,
    Load,
    Part,
    cut_out,
    head_bytes,
    open_elf,
    small_elf,
)
from tests.fuzz.seeds import saved_seeds
from tests.unit.symbolizer.elf.elf_writer import note
from tests.unit.symbolizer.unwind.eh_writer import CODE_VADDR, Cie, Fde, eh_elf

_TEXT = 0x1000
_C = """
static inline __attribute__((always_inline))
int twice(int x) { return x * 2 + (x > 9 ? x / 3 : 1); }
int first(int x) { for (int i = 0; i < x; i++) x += twice(i); return twice(x) * 3; }
int second(int x) { volatile int kept[x + 1]; kept[x] = first(x); return kept[x] + twice(x); }
"""


@cache
def library(*flags: str) -> ElfFile:
    """A small shared object, compiled."""
    with tempfile.TemporaryDirectory() as name:
        Path(name, "two.c").write_text(_C)
        # Keep the folder's name out of the file, so that inputs are the same each time.
        same = (f"-ffile-prefix-map={name}=/src", "-gno-record-gcc-switches")
        command = ["gcc", "-O2", "-shared", "-fPIC", "-nostdlib", "-Wl,--hash-style=both", *same]
        subprocess.run([*command, *flags, "-o", "two.so", "two.c"], cwd=name, check=True)
        return ElfFile.from_bytes(Path(name, "two.so").read_bytes())


def pcs_of(elf: ElfFile, step: int = 7) -> list[int]:
    """Addresses all over the code of a file, and some beyond."""
    code = [each for each in elf.segments if each.executable]
    found = [
        vaddr
        for each in code[:2]
        for vaddr in range(each.vaddr, each.vaddr + min(each.filesz, 1 << 9), step)
    ]
    return [*found, 0, 1 << 63, (1 << 64) - 1]


# ELF headers.


@cache
def elf_seeds() -> Sequence[bytes]:
    notes = note(b"GNU\0", 3, bytes(range(20))) + note(b"Go\0\0", 4, b"id")
    loads = [
        Load(_TEXT, b"\x90" * 64, PF_R | PF_X),
        Load(0x2000, notes),
        Load(0x2000, notes, kind=4),
        Load(0x3000, bytes(32), PF_R | PF_W, memsz=4096),
    ]
    parts = [
        Part(".text", vaddr=_TEXT, size=64),
        Part(".note.gnu.build-id", vaddr=0x2000, size=len(notes), kind=7),
        Part(".comment", b"GCC"),
    ]
    return (
        small_elf(loads, parts, entry=_TEXT),
        small_elf(loads[:1], [], is_pie=True),
        eh_elf([Fde(b"")]),
    )


def ask_elf(data: bytes) -> None:
    with ElfFile.from_bytes(data) as elf:
        assert len(elf.build_id) <= 128
        assert elf.size == len(data)
        for name, section in elf.sections.items():
            assert isinstance(name, str)
            if not section.nobits and section.size < 1 << 20:
                assert len(elf.read_offset(section.offset, section.size)) == section.size
        for segment in elf.segments:
            for vaddr in (segment.vaddr, segment.vaddr + segment.filesz - 1):
                try:
                    assert 0 <= elf.vaddr_to_offset(vaddr) < len(data)
                    elf.read(vaddr, 8)
                except ElfError:
                    continue
        bias_of(MapsLine(0x7F00_0000_1000, 0x7F00_0000_3000, 0, 1, 1, "/x"), elf)


# Symbols: by sections, by the dynamic table, from a debug file.


@saved_seeds
def symbol_seeds() -> Sequence[bytes]:
    elf = library()
    text = elf.sections[".text"]
    loads = [Load(text.vaddr, cut_out(elf, text, 512), PF_R | PF_X)]
    parts = [
        Part(".symtab", cut_out(elf, elf.sections[".symtab"]), kind=SHT_SYMTAB, link=".strtab"),
        Part(".strtab", cut_out(elf, elf.sections[".strtab"]), kind=3),
    ]
    whole = max(each.offset + each.filesz for each in elf.segments if not each.writable)
    assert elf.dynamic is not None
    low = elf.read_offset(0, whole)
    dynamic_at = next(s.vaddr for s in elf.sections.values() if s.name == ".dynamic")
    dynamic = elf.read_offset(*elf.dynamic)
    names = (".dynsym", ".dynstr", ".hash", ".gnu.hash")
    keep = [(elf.sections[n].vaddr, cut_out(elf, elf.sections[n])) for n in names]
    bare = [Load(vaddr, content) for vaddr, content in keep]
    bare += [loads[0], Load(dynamic_at, dynamic, PF_R | PF_W)]
    bare += [Load(dynamic_at, dynamic, PF_R | PF_W, kind=PT_DYNAMIC)]
    assert len(low) > 64
    by_section = [
        Part(".dynsym", keep[0][1], kind=SHT_DYNSYM, link=".dynstr"),
        Part(".dynstr", keep[1][1], kind=3),
    ]
    return small_elf(loads, parts), small_elf(bare, [], is_pie=True), small_elf(loads, by_section)


def ask_symbols(data: bytes) -> None:
    elf = open_elf(data)
    table = SymbolTable.open(elf)
    for vaddr in pcs_of(elf) if table else ():
        symbol = table.at(vaddr) if table else None
        if symbol:
            assert symbol.start <= vaddr < symbol.end
            assert symbol.name


# Unwind tables.


@saved_seeds
def unwind_seeds() -> Sequence[bytes]:
    elf = library("-Wl,-z,lazy")
    text, frames = elf.sections[".text"], elf.sections[".eh_frame"]
    hdr = elf.sections[".eh_frame_hdr"]
    loads = [
        Load(text.vaddr, cut_out(elf, text, 512), PF_R | PF_X),
        Load(frames.vaddr, cut_out(elf, frames)),
    ]
    parts = [Part(".eh_frame", vaddr=frames.vaddr, size=frames.size)]
    with_hdr = [
        *loads,
        Load(hdr.vaddr, cut_out(elf, hdr)),
        Load(hdr.vaddr, cut_out(elf, hdr), kind=0x6474E550),
    ]
    plt = b"\x0e\x10\x46\x0e\x18\x4a\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"
    signal = b"\x0f\x04\x77\xa0\x01\x06\x10\x10\x03\x77\xa8\x01"
    aligned = b"\x41\x10\x06\x02\x76\x00\x45\x0f\x03\x76\x78\x06\x0a\x5a\x0c\x07\x08\x0b"
    back = b"\x44\x0e\x10\x01\x00\x40\x01\x00"
    programs = [
        plt,
        signal,
        aligned,
        back,
        b"\x07\x10",
        b"\x2e\x10\x0a\x4e\x0e\x20\x86\x02\x4e\x0b",
    ]
    made = [Fde(program, CODE_VADDR + 0x40 * at) for at, program in enumerate(programs)]
    return (
        small_elf(loads, parts),
        small_elf(with_hdr, parts),
        eh_elf(made, Cie(b"zRS")),
        eh_elf(made, has_hdr=False),
        eh_elf(made, Cie(b"zPLR", b"\x1b" + bytes(4) + b"\x1b\x1b")),
        # A system call between a function and code without callers.
        eh_elf(
            [Fde(b"", size=0x2C), Fde(b"\x07\x10", CODE_VADDR + 0x36)],
            code=bytes(0x2C) + b"\x0f\x05" + bytes(0x60),
        ),
    )


def ask_unwinding(data: bytes) -> None:
    elf = open_elf(data)
    table = EhFrame.open(elf)
    code = [*pcs_of(elf, 16), *range(CODE_VADDR, CODE_VADDR + 0x140, 0x30)]
    for pc in code if table else ():
        found = table.ranges(pc) if table else ()
        assert len(found) < 1 << 16
        for each in found:
            assert each.start < each.end
            assert abs(each.rule.cfa_offset) < 1 << 31
        assert all(before.end <= after.start for before, after in pairwise(found))


# DWARF of native code.


@saved_seeds
def line_seeds() -> Sequence[bytes]:
    found = []
    for flags in (
        ("-gdwarf-5",),
        ("-gdwarf-4",),
        ("-gdwarf-5", "-ffunction-sections"),
        ("-gdwarf-2",),
    ):
        elf = library(*flags)
        text = elf.sections[".text"]
        loads = [Load(text.vaddr, cut_out(elf, text, 512), PF_R | PF_X)]
        parts = [
            Part(name, cut_out(elf, section))
            for name, section in elf.sections.items()
            if name.startswith(".debug_")
        ]
        parts += [
            Part(".symtab", cut_out(elf, elf.sections[".symtab"]), kind=SHT_SYMTAB, link=".strtab"),
            Part(".strtab", cut_out(elf, elf.sections[".strtab"]), kind=3),
        ]
        found.append(small_elf(loads, parts))
    return found


def ask_lines(data: bytes) -> None:
    elf = open_elf(data)
    lines = NativeLines.open(elf)
    wanted = pcs_of(elf, 13)
    found = lines.frames(wanted) if lines else {}
    assert not lines or found.keys() == set(wanted)
    assert all(isinstance(each, NativeFrame) for frames in found.values() for each in frames)


def ask_native(data: bytes) -> None:
    """All of a file at once: no part of it raises, however corrupt it is."""
    binary = NativeBinary(open_elf(data))
    for frames in binary.frames_many(pcs_of(open_elf(data), 29)).values():
        for frame in frames:
            assert frame.function
            assert (
                0
                <= min(frame.line, frame.start_line)
                <= max(frame.line, frame.start_line)
                < 1 << 31
            )


# Names of C++ and Rust, which a separate process demangles.

_MANGLED = (
    b"_ZNSt6vectorIiSaIiEE9push_backERKi",
    b"_ZN5outer6HolderIlE6scaledEl.llvm.0123ABCD",
    b"_ZN4core3ptr85drop_in_place$LT$std..rt..lang_start$GT$17h0123456789abcdefE",
    b"_RNvMsr_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3new",
    b"_RINvNtC3std3mem8align_ofNtNtC3std3mem12DiscriminantE",
    b"_ZSt4sortIN9__gnu_cxx17__normal_iteratorIPiSt6vectorIiSaIiEEEEvT_S7_",
)


_OWN = Demangler()
atexit.register(_OWN.end)


def ask_name(data: bytes) -> None:
    name = data.decode("utf-8", "replace")
    demangled.cache_clear()
    with (
        mock.patch.object(demangle, "DEMANGLER", _OWN),
        mock.patch.object(demangle, "MAX_STARTS", 1 << 60),  # inputs end the process
    ):
        found = demangled(name)
    assert isinstance(found, str)
    assert "\n" not in found or "\n" in name
    assert len(found) <= max(1 << 16, len(name))


# Separate debug files.


@cache
def debug_seeds() -> Sequence[bytes]:
    link = b"two.debug\0\0\0" + struct.pack("<I", 0xFFFFFFFF)
    loads = [Load(_TEXT, b"\x90" * 16, PF_R | PF_X)]
    return small_elf(loads, [Part(".gnu_debuglink", link)]), *elf_seeds()


@cache
def _debugged() -> ElfFile:
    return ElfFile.from_bytes(elf_seeds()[0])


def ask_debug_file(data: bytes) -> None:
    name, crc = _debug_link(open_elf(data) if head_bytes(data) else _debugged())
    assert "/" not in name
    assert name not in (".", "..")
    assert 0 <= crc < 1 << 32
    fd = os.memfd_create("debug", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        with DebugFiles(FileOpener())._fitting(_debugged(), fd, None) as debug:
            assert all(each.filesz == 0 for each in debug.segments)
    finally:
        os.close(fd)


NATIVE = (
    Parser("elf", ("symbolizer.elf.file", "symbolizer.elf.source"), ask_elf, elf_seeds),
    Parser("symbols", ("symbolizer.elf.symbols",), ask_symbols, symbol_seeds, frozen=head_bytes),
    Parser(
        "unwind-tables",
        ("symbolizer.unwind.eh_frame", "symbolizer.unwind.cfi"),
        ask_unwinding,
        unwind_seeds,
        frozen=head_bytes,
    ),
    Parser(
        "native-lines",
        (
            *("symbolizer.native.lines", "symbolizer.dwarf.lines", "symbolizer.dwarf.abbrevs"),
            *("symbolizer.dwarf.inline", "symbolizer.dwarf.ranges", "symbolizer.dwarf.units"),
            *("symbolizer.dwarf.forms", "symbolizer.dwarf.sections", "symbolizer.dwarf.work"),
        ),
        ask_lines,
        line_seeds,
        frozen=head_bytes,
    ),
    Parser(
        "native-names",
        ("symbolizer.native.binary",),
        ask_native,
        line_seeds,
        allowed=(),
        frozen=head_bytes,
    ),
    Parser(
        "demangling",
        ("symbolizer.native.demangle",),
        ask_name,
        lambda: _MANGLED,
        allowed=(),
        share=100,
        frozen=lambda _: 2,
    ),
    Parser(
        "debug-files",
        ("ebpfprof.process.debug_files",),
        ask_debug_file,
        debug_seeds,
        allowed=(ElfError, DoesNotFitError),
    ),
)
