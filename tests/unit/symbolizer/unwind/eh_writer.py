"""Small ELF files with unwind tables, and the tables of real files as readelf prints them."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from symbolizer.unwind.rules import RuleKind, UnwindRule
from tests.unit.symbolizer.elf.elf_writer import ElfWriter, Load, Part

PT_GNU_EH_FRAME: Final = 0x6474E550
HDR_VADDR: Final = 0x1000
FRAMES_VADDR: Final = 0x2000
CODE_VADDR: Final = 0x10000
# def_cfa rsp+8; offset r16, 1: as every compiler begins a function.
INITIAL: Final = b"\x0c\x07\x08\x90\x01"


@dataclass(frozen=True)
class Cie:
    """The fields of a CIE; `data` is that of its augmentation (the encoding pcrel sdata4)."""

    augmentation: bytes = b"zR"
    data: bytes = b"\x1b"
    initial: bytes = INITIAL
    version: int = 1
    code_align: bytes = b"\x01"
    data_align: bytes = b"\x78"
    register: bytes = b"\x10"
    data_size: int | None = None

    def build(self) -> bytes:
        body = bytes([0, 0, 0, 0, self.version]) + self.augmentation + b"\0"
        body += self.code_align + self.data_align + self.register
        if self.augmentation.startswith(b"z"):
            size = len(self.data) if self.data_size is None else self.data_size
            body += bytes([size]) + self.data
        return with_length(body + self.initial)


@dataclass(frozen=True)
class Fde:
    """The fields of an FDE: instructions for `size` bytes of code from `start`."""

    program: bytes
    start: int = CODE_VADDR
    size: int = 0x40


def with_length(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def frames(fdes: Sequence[Fde], cie: Cie) -> tuple[bytes, list[int]]:
    """Bytes of .eh_frame, and the addresses of the FDEs."""
    data, places = bytearray(cie.build()), []
    for fde in fdes:
        at = FRAMES_VADDR + len(data)
        places.append(at)
        head = struct.pack("<Iii", len(data) + 4, fde.start - at - 8, fde.size)
        head += b"\0" if cie.augmentation.startswith(b"z") else b""
        data += with_length(head + fde.program)
    return bytes(data + bytes(4)), places


def eh_elf(
    fdes: Sequence[Fde], cie: Cie | None = None, *, has_hdr: bool = True, code: bytes = b""
) -> bytes:
    """An ELF file with these tables: found by the program header, or by the section.

    With this code from CODE_VADDR on, if there is some.
    """
    loads = [Load(CODE_VADDR, code)] if code else []
    data, places = frames(fdes, cie or Cie())
    if not has_hdr:
        section = Part(".eh_frame", FRAMES_VADDR, len(data))
        return ElfWriter([Load(FRAMES_VADDR, data), *loads], [section]).build()
    pairs = sorted((fde.start, at) for fde, at in zip(fdes, places, strict=True))
    hdr = struct.pack("<BBBBiI", 1, 0x1B, 3, 0x3B, FRAMES_VADDR - HDR_VADDR - 4, len(pairs))
    assert len(hdr) + 8 * len(pairs) <= FRAMES_VADDR - HDR_VADDR
    for pair in pairs:
        hdr += struct.pack("<ii", *(address - HDR_VADDR for address in pair))
    whole = hdr.ljust(FRAMES_VADDR - HDR_VADDR, b"\0") + data
    header = Load(HDR_VADDR, b"", kind=PT_GNU_EH_FRAME)
    return ElfWriter([Load(HDR_VADDR, whole), *loads, header]).build()


@dataclass(frozen=True)
class Row:
    """A row of readelf's table: the columns by register, for the code in [start, end)."""

    start: int
    end: int
    is_signal: bool
    cells: dict[str, str]

    def rule(self) -> UnwindRule | None:
        """The row as a rule; None where an expression gives the CFA."""
        address, cfa = self.cells["ra"], self.cells["CFA"]
        if address == "u":
            return UnwindRule(RuleKind.END)
        if cfa == "exp":
            return None
        match = re.fullmatch(r"(\w+)([+-]\d+)", cfa)
        assert match is not None, cfa
        kind = {"rsp": RuleKind.SP, "rbp": RuleKind.BP}.get(match[1])
        offset = int(match[2])
        bp = self.cells.get("rbp", "u")
        if kind is RuleKind.SP and bp == "exp":
            bp = "s"  # GCC, at the return from a realigned stack: rbp is restored
        is_known = address == "c-8" and self.cells.get("rsp", "u") == "u" and bp[0] in "usc"
        if kind is None or not is_known or (kind is RuleKind.SP and offset < 8):
            return UnwindRule(RuleKind.NONE)
        bp_offset = int(bp[1:]) if bp.startswith("c") else None
        return UnwindRule(kind, offset, bp_offset, self.is_signal)


@dataclass(frozen=True)
class Function:
    """An FDE of a file, as readelf prints it."""

    start: int
    end: int
    rows: list[Row]


_HEAD: Final = re.compile(r'(\w+) \w+ \w+ (?:CIE "(\w*)"|FDE cie=(\w+) pc=(\w+)\.\.(\w+))')


def readelf_functions(path: Path) -> Iterator[Function]:
    """Yield all FDEs of the .eh_frame of a file."""
    flags = ("--debug-dump=frames-interp", "--debug-dump=no-follow-links", "--wide")
    run = subprocess.run(["readelf", *flags, str(path)], capture_output=True, text=True, check=True)
    text = run.stdout
    cies: dict[str, tuple[bool, list[tuple[int, dict[str, str]]]]] = {}
    for block in text[text.index("Contents of the .eh_frame") :].split("\n\n"):
        lines = block.strip().splitlines()
        head = _HEAD.match(lines[0]) if lines else None
        if head is None:
            continue
        names = lines[1].split()[1:] if len(lines) > 1 else []
        table = []
        for line in lines[2:]:
            location, *cells = re.findall(r"r\d+ \(\w+\)|\S+", line)
            table.append((int(location, 16), dict(zip(names, cells, strict=True))))
        if head[3] is None:
            cies[head[1]] = ("S" in head[2], table)
            continue
        is_signal, initial = cies[head[3]]
        start, end = int(head[4], 16), int(head[5], 16)
        table = table or [(start, initial[0][1])]
        ends = [*(location for location, _ in table[1:]), end]
        rows = [
            Row(at, until, is_signal, cells) for (at, cells), until in zip(table, ends, strict=True)
        ]
        yield Function(start, end, rows)
