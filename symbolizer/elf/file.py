"""ELF files: segments, sections, the build id, and bounded reads by address or by offset."""

import os
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import IO, Any, Final, Self, cast

from elftools.elf.elffile import ELFFile

from symbolizer.allowance import Allowance
from symbolizer.elf.source import ByteSource, FileSource, MemorySource, SourceStream
from symbolizer.errors import ElfError, UnsupportedElf

PF_X: Final = 1
PF_W: Final = 2

_HEADER_BYTES = 64
_MAX_SEGMENTS = 512
_MAX_SECTIONS = 1024
_MAX_NOTE_BYTES = 1 << 16
_MAX_BUILD_ID_BYTES = 64
_HEADERS_BUDGET_BYTES = 8 << 20
_NT_GNU_BUILD_ID = 3
_ADDRESS_END = 1 << 64
_MAX_LOADED_BYTES = 2 << 30
"""Code and data of a program reach each other with 32-bit displacements."""


_MACHINES = {3: "x86", 8: "MIPS", 20: "PowerPC", 21: "PowerPC64", 22: "S390", 40: "ARM"}
_MACHINES |= {62: "x86-64", 183: "AArch64", 243: "RISC-V", 258: "LoongArch"}
_TYPES = {0: "file without a type", 1: "relocatable object", 4: "core dump"}
_ET_EXEC, _ET_DYN, _EM_X86_64 = 2, 3, 62


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
        except BaseException:  # Ctrl-C too: nobody else closes it
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


def _parse(source: ByteSource, header: bytes) -> _Parsed:
    """Read segments and sections; without sections if their headers contradict themselves."""
    try:
        return _parse_with(SourceStream(source, budget=_HEADERS_BUDGET_BYTES), source.size)
    except ElfError:
        # Zero e_shoff, and e_shentsize to e_shstrndx: as if the file had no sections.
        bare = header[:40] + bytes(8) + header[48:58] + bytes(6)
        stream = SourceStream(source, head=bare, budget=_HEADERS_BUDGET_BYTES)
        return _parse_with(stream, source.size)


def _parse_with(stream: SourceStream, size: int) -> _Parsed:
    try:
        elf = ELFFile(cast("IO[bytes]", stream))
        if elf.num_segments() > _MAX_SEGMENTS or elf.num_sections() > _MAX_SECTIONS:
            raise ElfError("the file has more segments or sections than any real program")
        headers = [segment.header for segment in elf.iter_segments()]
        sections = [(section.name, section.header) for section in elf.iter_sections()]
        is_pie = elf.header["e_type"] == "ET_DYN"
        entry = elf.header["e_entry"]
    except ElfError:
        raise
    except Exception as error:  # of a corrupt file, pyelftools raises any
        raise ElfError(f"the ELF headers are corrupt: {error}") from error
    loads = tuple(_segment(header, size) for header in headers if header["p_type"] == "PT_LOAD")
    if not loads:
        raise ElfError("the file has nothing to load: no PT_LOAD segment")
    if sum(load.filesz for load in loads) > _MAX_LOADED_BYTES:
        raise ElfError("the file loads more than 2 GiB, which no x86-64 program does")
    notes = [_range(header) for header in headers if header["p_type"] == "PT_NOTE"]
    dynamics = [_range(header) for header in headers if header["p_type"] == "PT_DYNAMIC"]
    notes += [(h["sh_offset"], h["sh_size"]) for _, h in sections if h["sh_type"] == "SHT_NOTE"]
    named: dict[str, Section] = {}
    for name, section_header in sections:
        section = _section(name, section_header)
        if section.nobits or section.offset + section.size <= size:
            named.setdefault(name, section)
    return _Parsed(is_pie, entry, loads, named, notes, dynamics[0] if dynamics else None)


def _range(header: Mapping[str, Any]) -> tuple[int, int]:
    return header["p_offset"], header["p_filesz"]


def _segment(header: Mapping[str, Any], size: int) -> Segment:
    segment = Segment(
        vaddr=header["p_vaddr"],
        memsz=header["p_memsz"],
        offset=header["p_offset"],
        filesz=header["p_filesz"],
        flags=header["p_flags"],
    )
    if segment.offset + segment.filesz > size:
        raise ElfError(
            f"the segment at {segment.vaddr:#x} runs past the end of the file: it is truncated"
        )
    if segment.filesz > segment.memsz or segment.vaddr + segment.memsz > _ADDRESS_END:
        raise ElfError(f"the segment at {segment.vaddr:#x} contradicts itself")
    return segment


def _section(name: str, header: Mapping[str, Any]) -> Section:
    return Section(
        name=name,
        vaddr=header["sh_addr"],
        offset=header["sh_offset"],
        size=header["sh_size"],
        flags=header["sh_flags"],
        nobits=header["sh_type"] == "SHT_NOBITS",
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
