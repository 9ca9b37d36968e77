"""ELF files made in memory, as valid or corrupt as a test needs them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

PT_LOAD: Final = 1
PT_NOTE: Final = 4
PF_X: Final = 1
PF_W: Final = 2
PF_R: Final = 4
SHT_PROGBITS: Final = 1
SHT_NOTE: Final = 7
SHT_NOBITS: Final = 8
HEADER_BYTES: Final = 64
SECTION_HEADER_BYTES: Final = 64


@dataclass
class Load:
    """A segment: its address and its bytes; `memsz` 0 is the size of the data."""

    vaddr: int
    data: bytes
    flags: int = PF_R
    memsz: int = 0
    kind: int = PT_LOAD


@dataclass
class Part:
    """A section with bytes of a segment, or with its own if `data` is given."""

    name: str
    vaddr: int = 0
    size: int = 0
    data: bytes | None = None
    kind: int = SHT_PROGBITS


@dataclass
class ElfWriter:
    """Header fields and contents; `build` lays them out one after the other."""

    segments: list[Load] = field(default_factory=list)
    sections: list[Part] = field(default_factory=list)
    word: int = 2
    order: int = 1
    kind: int = 2
    machine: int = 62
    shnum: int | None = None
    shoff: int | None = None

    def build(self) -> bytes:
        offset = HEADER_BYTES + 56 * len(self.segments)
        headers, body, places = b"", b"", []
        for load in self.segments:
            size = len(load.data)
            headers += struct.pack(
                "<IIQQQQQQ",
                *(load.kind, load.flags, offset, load.vaddr, load.vaddr),
                *(size, max(size, load.memsz), 1),
            )
            places.append((load, offset))
            body += load.data
            offset += size
        tail, shoff, shstrndx = b"", 0, 0
        if self.sections:
            tail, shoff = self._sections(offset, places)
            shstrndx = len(self.sections) + 1
        count = shstrndx + 1 if self.sections else 0
        header = struct.pack(
            "<4sBBBBQHHIQQQIHHHHHH",
            *(b"\x7fELF", self.word, self.order, 1, 0, 0, self.kind, self.machine, 1, 0),
            *(HEADER_BYTES, shoff if self.shoff is None else self.shoff, 0, HEADER_BYTES),
            *(56, len(self.segments), SECTION_HEADER_BYTES),
            *(count if self.shnum is None else self.shnum, shstrndx),
        )
        return header + headers + body + tail

    def _sections(self, offset: int, places: list[tuple[Load, int]]) -> tuple[bytes, int]:
        """Contents, names and headers of the sections, and where the headers begin."""
        body, names, rows = b"", b"\0", [bytes(SECTION_HEADER_BYTES)]
        for part in self.sections:
            at = next(
                (
                    start + part.vaddr - load.vaddr
                    for load, start in places
                    if load.vaddr <= part.vaddr < load.vaddr + len(load.data)
                ),
                0,
            )
            size = part.size
            if part.data is not None:
                at, size = offset + len(body), len(part.data)
                body += part.data
            rows.append(section_header(len(names), part.kind, part.vaddr, at, size))
            names += part.name.encode() + b"\0"
        names_at = offset + len(body)
        rows.append(section_header(len(names), 3, 0, names_at, len(names) + len(b".shstrtab\0")))
        names += b".shstrtab\0"
        return body + names + b"".join(rows), names_at + len(names)


def section_header(name: int, kind: int, vaddr: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 2, vaddr, offset, size, 0, 0, 1, 0)


def note(name: bytes, kind: int, description: bytes) -> bytes:
    """An ELF note with its padding."""
    padded = [text + bytes(-len(text) % 4) for text in (name, description)]
    return struct.pack("<III", len(name), len(description), kind) + b"".join(padded)


def without_sections(data: bytes) -> bytes:
    """As sstrip leaves it: no section header at all."""
    changed = bytearray(data)
    changed[40:48] = bytes(8)
    changed[58:64] = bytes(6)
    return bytes(changed)
