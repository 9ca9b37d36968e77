"""Names of native functions: the symbol tables of an ELF file, .symtab or .dynsym."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from symbolizer.elf import ElfFile, Section
from symbolizer.errors import ElfError

_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
_MAX_SYMBOLS: Final = 4_000_000
_MAX_NAME_BYTES: Final = 4096
_MAX_UNSIZED_BYTES: Final = 1 << 16
_NOTYPE, _FUNC, _IFUNC = 0, 2, 10  # STT_*, elf.h
_EXECUTABLE = 4  # SHF_EXECINSTR
_GLOBAL, _WEAK = 1, 2  # STB_*
_TABLES: Final = ((".symtab", ".strtab"), (".dynsym", ".dynstr"))


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function's symbol: its name as it stands there (mangled), and its addresses, as linked."""

    name: str
    start: int
    end: int


class SymbolTable:
    """Functions of one file by address. Not for use by several threads at a time."""

    def __init__(self, elf: ElfFile, symbols: npt.NDArray[np.void], strings: Section) -> None:
        """Use `SymbolTable.open`."""
        self._elf = elf
        self._symbols = symbols
        self._strings = strings
        self._code = [s for s in elf.sections.values() if s.flags & _EXECUTABLE]
        self._starts = np.ascontiguousarray(symbols["value"])

    @classmethod
    def open(cls, elf: ElfFile, debug: ElfFile | None = None) -> Self | None:
        """Read the best table of the file or of its separate debug file; None without any.

        Raises ElfError if the table can't be read.
        """
        for names, strings in _TABLES:
            for file in (elf, debug):
                if file and names in file.sections and strings in file.sections:
                    symbols = _functions(file, file.sections[names], elf)
                    if len(symbols):
                        return cls(file, symbols, file.sections[strings])
        return None

    def at(self, vaddr: int) -> Symbol | None:
        """The function at an address; None if no symbol covers it."""
        if not 0 <= vaddr < 1 << 64:
            return None
        index = int(np.searchsorted(self._starts, np.uint64(vaddr), side="right")) - 1
        if index < 0:
            return None
        row = self._symbols[index]
        start, size = int(row["value"]), int(row["size"])
        if size == 0:
            # A label in assembly: it reaches to the next one, in its own section.
            size = min(_MAX_UNSIZED_BYTES, self._section_end(start) - start)
            if index + 1 < len(self._starts):
                size = min(size, int(self._starts[index + 1]) - start)
        if vaddr >= start + size:
            return None
        name = self._name(int(row["name"]))
        return Symbol(name, start, start + size) if name else None

    def _section_end(self, vaddr: int) -> int:
        ends = [s.vaddr + s.size for s in self._code if s.vaddr <= vaddr < s.vaddr + s.size]
        return min(ends, default=vaddr + _MAX_UNSIZED_BYTES)

    def _name(self, position: int) -> str:
        strings = self._strings
        if position >= strings.size:
            return ""
        size = min(_MAX_NAME_BYTES, strings.size - position)
        try:
            data = self._elf.read_offset(strings.offset + position, size)
        except ElfError:
            return ""
        return data.partition(b"\0")[0].partition(b"@")[0].decode("utf-8", "backslashreplace")


def _functions(file: ElfFile, table: Section, code: ElfFile) -> npt.NDArray[np.void]:
    """The functions' symbols in order of address, one for each address."""
    count = table.size // _SYMBOL.itemsize
    if table.nobits or count == 0:
        return np.zeros(0, _SYMBOL)
    if count > _MAX_SYMBOLS:
        raise ElfError(f"the table {table.name} claims {count} symbols")
    data = file.read_offset(table.offset, count * _SYMBOL.itemsize)
    symbols = np.frombuffer(data, _SYMBOL)
    kind, binding = symbols["info"] & 15, symbols["info"] >> 4
    is_code = np.zeros(count, bool)
    for segment in code.segments:
        if segment.executable:
            start, end = np.uint64(segment.vaddr), np.uint64(segment.vaddr + segment.memsz)
            is_code |= (symbols["value"] >= start) & (symbols["value"] < end)
    is_function = (kind == _FUNC) | (kind == _IFUNC) | (kind == _NOTYPE)
    chosen = is_code & is_function & (symbols["section"] != 0) & (symbols["name"] != 0)
    symbols, kind, binding = symbols[chosen], kind[chosen], binding[chosen]
    # Of several at one address: one with a size, a function, a global name, the first.
    rank = np.select([binding == _GLOBAL, binding == _WEAK], [0, 1], 2)
    order = np.lexsort(
        (symbols["name"], rank, kind == _NOTYPE, symbols["size"] == 0, symbols["value"])
    )
    symbols = symbols[order]
    first = np.ones(len(symbols), bool)
    first[1:] = symbols["value"][1:] != symbols["value"][:-1]
    result: npt.NDArray[np.void] = symbols[first]
    return result
