"""ELF files: segments, sections, the build id, and bounded reads by address or by offset."""

import os
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, Self

from symbolizer.allowance import Allowance
from symbolizer.elf.source import ByteSource, FileSource, MemorySource
from symbolizer.errors import ElfError, UnsupportedElf

PF_X: Final = 1
PF_W: Final = 2

_HEADER_BYTES = 64
_MAX_SEGMENTS = 512
_MAX_SECTIONS = 1024
_MAX_NOTE_BYTES = 1 << 16
_MAX_BUILD_ID_BYTES = 64
_MAX_NAMES_BYTES = 1 << 20
_NT_GNU_BUILD_ID = 3
_ADDRESS_END = 1 << 64
_MAX_LOADED_BYTES = 2 << 30
"""Code and data of a program reach each other with 32-bit displacements."""


_MACHINES = {3: "x86", 8: "MIPS", 20: "PowerPC", 21: "PowerPC64", 22: "S390", 40: "ARM"}
_MACHINES |= {62: "x86-64", 183: "AArch64", 243: "RISC-V", 258: "LoongArch"}
_TYPES = {0: "file without a type", 1: "relocatable object", 4: "core dump"}
_ET_EXEC, _ET_DYN, _EM_X86_64 = 2, 3, 62
_LOAD, _DYNAMIC, _NOTE = 1, 2, 4  # types of segments
_NOTES, _NO_BITS = 7, 8  # types of sections
# Elf64_Ehdr behind its first 16 bytes, Elf64_Phdr, Elf64_Shdr (elf.h)
_ELF_HEADER = struct.Struct("<HHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")


@dataclass(frozen=True, slots=True)
class Segment:
    """A PT_LOAD program header. Addresses and sizes in bytes; `flags` of PF_* (elf.h)."""

    vaddr: int
    memsz: int
    offset: int
    filesz: int
    flags: int

    @property
    def executable(self) -> bool:
        """Whether its pages are mapped executable."""
        return bool(self.flags & PF_X)

    @property
    def writable(self) -> bool:
        """Whether its pages are mapped writable."""
        return bool(self.flags & PF_W)


@dataclass(frozen=True, slots=True)
class Section:
    """A section header. Addresses and sizes in bytes; `flags` of SHF_*.

    `nobits` sections (.bss) take memory but have no bytes in the file.
    """

    name: str
    vaddr: int
    offset: int
    size: int
    flags: int
    nobits: bool = False


class ElfFile:
    """A 64-bit little-endian x86-64 executable or shared object.

    Headers are read once, when it is opened; everything else is read on demand. Every read is
    bounded by the size that the file had when it was opened. The memory and the CPU time that
    readers use count against its `allowance`, which the files of one process share. Any thread may
    use it.
    """

    def __init__(self, source: ByteSource, allowance: Allowance | None = None) -> None:
        """Parse the headers of `source`, and own it from now on, even if this raises.

        Raises ElfError if it is not a valid ELF file, UnsupportedElf for another machine.
        """
        self._source = source
        self.allowance: Final = allowance or Allowance()
        self.inflating: Final = threading.RLock()
        """Held while a section is added to `inflated`."""
        self.inflated: Final[dict[str, bytes]] = {}
        """Sections that were decompressed or read as a whole, by name."""
        self._counting = threading.Lock()
        self._kept_bytes = 0
        try:
            header = _checked_header(source)
            parsed = _parse(source, header)
        except BaseException:
            source.close()
            raise
        self.is_pie: Final[bool] = parsed.is_pie
        self.entry: Final[int] = parsed.entry
        self.segments: Final[tuple[Segment, ...]] = parsed.segments
        self.sections: Final[Mapping[str, Section]] = MappingProxyType(parsed.sections)
        self.dynamic: Final[tuple[int, int] | None] = parsed.dynamic
        """File offset and size in bytes of PT_DYNAMIC."""
        self._note_ranges = parsed.note_ranges
        self._build_id: str | None = None

    @classmethod
    def open(cls, file: int | str | os.PathLike[str], allowance: Allowance | None = None) -> Self:
        """Open a regular file by path, or by a descriptor, which is duplicated.

        Raises ElfError if it cannot be read or is not a valid ELF file, UnsupportedElf if it is
        of another machine or kind.
        """
        return cls(FileSource(file), allowance)

    @classmethod
    def from_bytes(cls, data: bytes, allowance: Allowance | None = None) -> Self:
        """Take the whole file as bytes. Raises as `open` does."""
        return cls(MemorySource(data), allowance)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def fd(self) -> int:
        """Its open file, -1 if it was given as bytes or is closed."""
        return self._source.fd if isinstance(self._source, FileSource) else -1

    def close(self) -> None:
        """Close the file; reading afterwards raises ElfError."""
        self._source.close()
        self.inflated.clear()
        self.allowance.release(self._kept_bytes)
        self._kept_bytes = 0

    def keep(self, size_bytes: int) -> None:
        """Count bytes that are kept until the file is closed. Raises TooMuchToRead."""
        self.allowance.keep(size_bytes)
        with self._counting:
            self._kept_bytes += size_bytes

    @property
    def size(self) -> int:
        """Size of the file in bytes when it was opened."""
        return self._source.size

    @property
    def build_id(self) -> str:
        """The GNU build id in hexadecimal, "" if there is none (Go's linker: none before 1.24)."""
        if self._build_id is None:
            self._build_id = self._find_build_id()
        return self._build_id

    def read_offset(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from the file offset; raise ElfError if they are not all there."""
        self.allowance.check()
        return self._source.read(offset, size)

    def read(self, vaddr: int, size: int) -> bytes:
        """Return `size` bytes from the virtual address, as linked.

        Raises ElfError unless one segment holds all of them in the file.
        """
        segment = self._segment_at(vaddr)
        start = vaddr - segment.vaddr
        if size < 0 or start + size > segment.filesz:
            raise ElfError(f"{size} bytes at {vaddr:#x} run past the end of their segment")
        return self.read_offset(segment.offset + start, size)

    def vaddr_to_offset(self, vaddr: int) -> int:
        """Return the file offset of a virtual address; raise ElfError if it has none."""
        segment = self._segment_at(vaddr)
        return segment.offset + vaddr - segment.vaddr

    def file_bytes_after(self, vaddr: int) -> int:
        """Return how many bytes of the file follow `vaddr` in its segment; ElfError if none."""
        segment = self._segment_at(vaddr)
        return segment.vaddr + segment.filesz - vaddr

    def scan(self, segment: Segment, chunk_bytes: int, overlap: int) -> Iterator[tuple[int, bytes]]:
        """Yield (vaddr, bytes) over a segment, each chunk repeating the last `overlap` bytes."""
        position = 0
        while position < segment.filesz:
            size = min(chunk_bytes + overlap, segment.filesz - position)
            yield segment.vaddr + position, self.read_offset(segment.offset + position, size)
            position += chunk_bytes

    def _segment_at(self, vaddr: int) -> Segment:
        for segment in self.segments:
            if segment.vaddr <= vaddr < segment.vaddr + segment.filesz:
                return segment
        raise ElfError(f"address {vaddr:#x} has no bytes in the file")

    def _find_build_id(self) -> str:
        for offset, size in self._note_ranges:
            try:
                notes = self.read_offset(offset, min(size, _MAX_NOTE_BYTES))
            except ElfError:
                continue
            for name, kind, description in _notes(notes):
                if name == b"GNU\0" and kind == _NT_GNU_BUILD_ID:
                    return description[:_MAX_BUILD_ID_BYTES].hex()
        return ""


@dataclass(slots=True)
class _Parsed:
    is_pie: bool
    entry: int
    segments: tuple[Segment, ...]
    sections: dict[str, Section]
    note_ranges: list[tuple[int, int]]
    dynamic: tuple[int, int] | None


def _checked_header(source: ByteSource) -> bytes:
    """Return the ELF header. Raises UnsupportedElf with the architecture if it is not x86-64."""
    if source.size < _HEADER_BYTES:
        raise ElfError(f"a file of {source.size} bytes is too small to be an ELF file")
    header = source.read(0, _HEADER_BYTES)
    if not header.startswith(b"\x7fELF"):
        raise ElfError("this is not an ELF file: it does not begin with the ELF magic number")
    word, order = header[4], header[5]
    kind, machine = struct.unpack_from(">HH" if order == 2 else "<HH", header, 16)
    if (word, order, machine) != (2, 1, _EM_X86_64):
        bits = {1: "32-bit", 2: "64-bit"}.get(word, "")
        endian = {1: "little-endian", 2: "big-endian"}.get(order, "")
        if not bits or not endian:
            raise ElfError("the ELF header has an unknown word size or byte order")
        name = _MACHINES.get(machine, f"machine {machine}")
        raise UnsupportedElf(
            f"this is a {bits} {endian} {name} program; only 64-bit x86-64 programs can be read"
        )
    if kind not in (_ET_EXEC, _ET_DYN):
        raise UnsupportedElf(
            f"this is an ELF {_TYPES.get(kind, f'file of type {kind}')}; "
            "an executable or a shared object is needed"
        )
    return header


class _Program(NamedTuple):
    """Elf64_Phdr (elf.h)."""

    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int


class _Header(NamedTuple):
    """Elf64_Shdr (elf.h); `name` is an offset in the section of names."""

    name: int
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_bytes: int


def _parse(source: ByteSource, header: bytes) -> _Parsed:
    """Read segments and sections; without sections if their headers contradict themselves."""
    kind, _, _, entry, phoff, shoff, *_, phsize, phnum, shsize, shnum, names = (
        _ELF_HEADER.unpack_from(header, 16)
    )
    programs = [
        _Program(*fields)
        for fields in _table(source, phoff, _PROGRAM, phsize, phnum, _MAX_SEGMENTS)
    ]
    loads = tuple(_segment(program, source.size) for program in programs if program.type == _LOAD)
    if not loads:
        raise ElfError("the file has nothing to load: no PT_LOAD segment")
    if sum(load.filesz for load in loads) > _MAX_LOADED_BYTES:
        raise ElfError("the file loads more than 2 GiB, which no x86-64 program does")
    sections: list[tuple[str, _Header]] = []
    with suppress(ElfError):
        sections = _sections(source, shoff, shsize, shnum, names)
    notes = [(program.offset, program.filesz) for program in programs if program.type == _NOTE]
    dynamic = [(each.offset, each.filesz) for each in programs if each.type == _DYNAMIC]
    notes += [(section.offset, section.size) for _, section in sections if section.type == _NOTES]
    named: dict[str, Section] = {}
    for name, section_header in sections:
        section = _section(name, section_header)
        if section.nobits or section.offset + section.size <= source.size:
            named.setdefault(name, section)
    is_pie = kind == _ET_DYN
    return _Parsed(is_pie, entry, loads, named, notes, dynamic[0] if dynamic else None)


def _table(
    source: ByteSource, offset: int, kind: struct.Struct, size: int, count: int, most: int
) -> Iterator[tuple[int, ...]]:
    """The headers of a table of `count`, of `size` bytes each. Raises ElfError."""
    if not offset or not count:
        return iter(())
    if size != kind.size:
        raise ElfError(f"the ELF headers are corrupt: one of a table has {size} bytes")
    if count > most:
        raise ElfError("the file has more segments or sections than any real program")
    return kind.iter_unpack(source.read(offset, size * count))


def _sections(
    source: ByteSource, offset: int, size: int, count: int, names: int
) -> list[tuple[str, _Header]]:
    """The sections by name, in order; `names` is the number of the one with the names.

    Raises ElfError.
    """
    headers = [
        _Header(*fields) for fields in _table(source, offset, _SECTION, size, count, _MAX_SECTIONS)
    ]
    if not headers:
        return []
    if names >= len(headers):
        raise ElfError("the ELF headers are corrupt: no section has the names of sections")
    text = source.read(headers[names].offset, min(headers[names].size, _MAX_NAMES_BYTES))
    ends = [text.find(b"\0", header.name) for header in headers]
    if -1 in ends:
        raise ElfError("the ELF headers are corrupt: the name of a section does not end")
    return [
        (text[header.name : end].decode("utf-8", "replace"), header)
        for header, end in zip(headers, ends, strict=True)
    ]


def _segment(header: _Program, size: int) -> Segment:
    segment = Segment(header.vaddr, header.memsz, header.offset, header.filesz, header.flags)
    if segment.offset + segment.filesz > size:
        raise ElfError(
            f"the segment at {segment.vaddr:#x} runs past the end of the file: it is truncated"
        )
    if segment.filesz > segment.memsz or segment.vaddr + segment.memsz > _ADDRESS_END:
        raise ElfError(f"the segment at {segment.vaddr:#x} contradicts itself")
    return segment


def _section(name: str, header: _Header) -> Section:
    return Section(
        name=name,
        vaddr=header.addr,
        offset=header.offset,
        size=header.size,
        flags=header.flags,
        nobits=header.type == _NO_BITS,
    )


def _notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield (name, type, description) of each note; stop at the first that does not fit."""
    position = 0
    while position + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, position)
        name_at = position + 12
        at = name_at + (name_size + 3 & ~3)
        if at + size > len(data):
            return
        yield data[name_at : name_at + name_size], kind, data[at : at + size]
        position = at + (size + 3 & ~3)
