"""Small ELF files with all headers in front, and a quick way to open many that differ behind them.

A million changes to the bytes of a section should not parse the headers a million times: a file
that begins with the headers of a seed is opened with those, parsed before.
"""

from __future__ import annotations

import copy
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from symbolizer import ElfFile, Section, SymbolizerError
from symbolizer.elf.source import MemorySource

PF_X: Final = 1
PF_W: Final = 2
PF_R: Final = 4
PT_LOAD: Final = 1
PT_DYNAMIC: Final = 2
SHT_PROGBITS: Final = 1
SHT_SYMTAB: Final = 2
SHT_STRTAB: Final = 3
SHT_DYNSYM: Final = 11

_EHDR: Final = struct.Struct("<4sBBBBQHHIQQQIHHHHHH")
_PHDR: Final = struct.Struct("<IIQQQQQQ")
_SHDR: Final = struct.Struct("<IIQQQQIIQQ")
_FLAGS_AT: Final = 48
"""e_flags, which x86-64 does not use, holds the size of all headers here."""

_opened: dict[bytes, ElfFile] = {}


@dataclass(frozen=True)
class Load:
    """A program header and the bytes behind it; `kind` of PT_*."""

    vaddr: int
    data: bytes
    flags: int = PF_R
    kind: int = PT_LOAD
    memsz: int = 0


@dataclass(frozen=True)
class Part:
    """A section: its own bytes, or those that a Load has at `vaddr` for `size` bytes."""

    name: str
    data: bytes | None = None
    vaddr: int = 0
    size: int = 0
    kind: int = SHT_PROGBITS
    link: str = ""


def small_elf(
    loads: list[Load], parts: list[Part], *, is_pie: bool = False, entry: int = 0
) -> bytes:
    """The file: ELF header, program and section headers, their names, then all contents."""
    names = [part.name for part in parts] + [".shstrtab"]
    strings, name_at = b"\0", []
    for name in names:
        name_at.append(len(strings))
        strings += name.encode() + b"\0"
    count = len(parts) + 2
    phdrs_at = _EHDR.size
    shdrs_at = phdrs_at + _PHDR.size * len(loads)
    strings_at = shdrs_at + _SHDR.size * count
    head_bytes = strings_at + len(strings) + 15 & ~15
    body = bytearray()
    phdrs, places = b"", []
    for load in loads:
        at = head_bytes + len(body)
        places.append(at)
        body += load.data
        body += bytes(-len(body) % 16)
        size = len(load.data)
        phdrs += _PHDR.pack(
            load.kind, load.flags, at, load.vaddr, load.vaddr, size, max(size, load.memsz), 1
        )
    shdrs = bytes(_SHDR.size)
    for part, at_name in zip(parts, name_at, strict=False):
        if part.data is None:
            load, start = next(
                (load, at)
                for load, at in zip(loads, places, strict=True)
                if load.vaddr <= part.vaddr <= load.vaddr + len(load.data)
            )
            at, size = start + part.vaddr - load.vaddr, part.size
        else:
            at, size = head_bytes + len(body), len(part.data)
            body += part.data
            body += bytes(-len(body) % 16)
        link = names.index(part.link) + 1 if part.link else 0
        words = (at_name, part.kind, 2, part.vaddr, at, size, link, 0, 1, 24)
        shdrs += _SHDR.pack(*words)
    shdrs += _SHDR.pack(name_at[-1], SHT_STRTAB, 0, 0, strings_at, len(strings), 0, 0, 1, 0)
    header = _EHDR.pack(
        *(b"\x7fELF", 2, 1, 1, 0, 0, 3 if is_pie else 2, 62, 1, entry, phdrs_at, shdrs_at),
        *(head_bytes, _EHDR.size, _PHDR.size, len(loads), _SHDR.size, count, count - 1),
    )
    head = (header + phdrs + shdrs + strings).ljust(head_bytes, b"\0")
    data = head + bytes(body)
    remember(data)
    return data


def remember(data: bytes) -> None:
    """Keep the headers of a small ELF file, so that head_bytes() and open_elf() know them."""
    if data.startswith(b"\x7fELF"):
        (size,) = struct.unpack_from("<I", data, _FLAGS_AT)
        with suppress(SymbolizerError):  # then the parser raises it
            _opened[data[:size]] = ElfFile.from_bytes(data)


def head_bytes(data: bytes) -> int:
    """The size of the headers of a small ELF file; 0 for other data."""
    if len(data) < _EHDR.size:
        return 0
    (size,) = struct.unpack_from("<I", data, _FLAGS_AT)
    return int(size) if data[:size] in _opened else 0


def open_elf(data: bytes) -> ElfFile:
    """Like ElfFile.from_bytes, but quicker with the headers of a seed. Raises the same errors."""
    known = _opened.get(data[: head_bytes(data)])
    if known is None:
        return ElfFile.from_bytes(data)
    elf = copy.copy(known)
    elf._source = MemorySource(data)
    return elf


def cut_out(elf: ElfFile, section: Section, limit: int = 1 << 14) -> bytes:
    """The first bytes of a section of a real file."""
    return elf.read_offset(section.offset, min(section.size, limit))
