"""The sections that hold DWARF, compressed or not."""

import struct
import zlib

from symbolizer.dwarf.forms import DwarfError
from symbolizer.elf.file import ElfFile, Section
from symbolizer.errors import ElfError

_MAX_SECTION_BYTES = 256 << 20
_NAME_BYTES = 1 << 8
_MAX_NAME_BYTES = 1 << 14
_SHF_COMPRESSED = 0x800
_COMPRESSION_HEADER = struct.Struct("<IIQQ")
_ZLIB = 1


class LazySection:
    """A section; only a compressed one is kept in memory."""

    def __init__(self, elf: ElfFile, name: str) -> None:
        """Raise DwarfError if the section is compressed and corrupt; TooMuchToRead."""
        self._elf = elf
        self._data: bytes | None = None
        section = elf.sections.get(f".{name}")
        self._offset, self.size = 0, 0
        if section is not None and not section.nobits and not section.flags & _SHF_COMPRESSED:
            self._offset, self.size = section.offset, section.size
        else:
            self._data = dwarf_section(elf, name)
            self.size = len(self._data)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes, fewer at the end of the section. Raises ElfError."""
        size = max(0, min(size, self.size - position))
        if position < 0 or not size:
            return b""
        if self._data is not None:
            return self._data[position : position + size]
        return self._elf.read_offset(self._offset + position, size)

    def string(self, position: int) -> str:
        """Return the string at an offset. Raises DwarfError, ElfError."""
        for size in (_NAME_BYTES, _MAX_NAME_BYTES):
            data, zero, _ = self.read(position, size).partition(b"\0")
            if zero:
                return data.decode("utf-8", "replace")
        raise DwarfError("a name does not end")


def has_dwarf(elf: ElfFile) -> bool:
    """Whether the file's section headers list DWARF."""
    present = (elf.sections.get(name) for name in (".debug_info", ".zdebug_info"))
    return any(section is not None and not section.nobits for section in present)


def dwarf_section(elf: ElfFile, name: str) -> bytes:
    """Return a section's bytes, decompressed; b"" if there is none.

    They are kept as long as the file is open. Raises DwarfError, TooMuchToRead.
    """
    with elf.inflating:  # once for all threads: it takes long, and counts as memory
        if name not in elf.inflated:
            elf.inflated[name] = _read_section(elf, name)
        return elf.inflated[name]


def _read_section(elf: ElfFile, name: str) -> bytes:
    plain, old = elf.sections.get(f".{name}"), elf.sections.get(f".z{name}")
    try:
        if plain is not None and not plain.nobits:
            if not plain.flags & _SHF_COMPRESSED:
                elf.keep(min(plain.size, _MAX_SECTION_BYTES))
                return _raw(elf, plain)
            data = _raw(elf, plain)
            kind, _, size, _ = _COMPRESSION_HEADER.unpack_from(data)
            if kind != _ZLIB:
                raise DwarfError(f".{name} is compressed, but not with zlib")
            return _inflated(elf, data[_COMPRESSION_HEADER.size :], size)
        if old is not None and not old.nobits:
            data = _raw(elf, old)
            if data[:4] != b"ZLIB":
                raise DwarfError(f".z{name} is not compressed")
            return _inflated(elf, data[12:], int.from_bytes(data[4:12], "big"))
    except (ElfError, struct.error, zlib.error) as error:
        raise DwarfError(f".{name} cannot be read: {error}") from error
    return b""


def _raw(elf: ElfFile, section: Section) -> bytes:
    if section.size > _MAX_SECTION_BYTES:
        raise DwarfError(f"{section.name} is larger than in any real program")
    return elf.read_offset(section.offset, section.size)


def _inflated(elf: ElfFile, data: bytes, size: int) -> bytes:
    if not 0 < size <= _MAX_SECTION_BYTES:
        raise DwarfError(f"a section claims {size} bytes, which no real program's has")
    elf.keep(size)
    inflated = zlib.decompressobj().decompress(data, size)
    if len(inflated) != size:
        raise DwarfError("a compressed section is shorter than it claims")
    return inflated
