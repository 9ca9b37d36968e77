"""Names of native functions: the symbol tables of an ELF file, .symtab or .dynsym."""

import struct
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from symbolizer.elf.file import ElfFile, Section
from symbolizer.errors import ElfError

SYMBOL: Final = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
"""A row of .symtab or .dynsym (Elf64_Sym, elf.h)."""
_MAX_SYMBOLS: Final = 4_000_000
_KEPT_BYTES: Final = SYMBOL.itemsize + 16
_MAX_NAME_BYTES: Final = 4096
_MAX_UNSIZED_BYTES: Final = 1 << 16
_MAX_NESTED: Final = 64
_NOTYPE, _FUNC, _IFUNC = 0, 2, 10  # STT_*, elf.h
_EXECUTABLE = 4  # SHF_EXECINSTR
_GLOBAL, _WEAK = 1, 2  # STB_*
_DT_NULL, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_GNU_HASH = 0, 4, 5, 6, 10, 0x6FFFFEF5
_MAX_CHAIN: Final = 1 << 16
_MAX_DYNAMIC_BYTES: Final = 1 << 16
_TABLES: Final = ((".symtab", ".strtab"), (".dynsym", ".dynstr"))


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function's symbol: its name (mangled), and its addresses, as linked."""

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
        self._reach = np.maximum.accumulate(_ends(symbols))
        """The highest address that a symbol, or any before it, reaches."""

    @classmethod
    def open(cls, elf: ElfFile, debug: ElfFile | None = None) -> Self | None:
        """Read the best table of the file or of its separate debug file; None if there is none.

        Raises ElfError if the table cannot be read.
        """
        for names, strings in _TABLES:
            for file in (elf, debug):
                if file and names in file.sections and strings in file.sections:
                    symbols = _functions(file, file.sections[names], elf)
                    if len(symbols):
                        file.keep(len(symbols) * _KEPT_BYTES)
                        return cls(file, symbols, file.sections[strings])
        tables = None if elf.sections else _dynamic_tables(elf)
        if tables:
            symbols = _functions(elf, tables[0], elf)
            if len(symbols):
                elf.keep(len(symbols) * _KEPT_BYTES)
                return cls(elf, symbols, tables[1])
        return None

    def at(self, vaddr: int) -> Symbol | None:
        """Return the function at an address, the innermost if they overlap; None if there is none.

        A symbol without a size (assembly) extends to the next one in its section.
        """
        if not 0 <= vaddr < 1 << 64:
            return None
        index = int(np.searchsorted(self._starts, np.uint64(vaddr), side="right")) - 1
        for at in range(index, max(index - _MAX_NESTED, -1), -1):
            row = self._symbols[at]
            start, size = int(row["value"]), int(row["size"])
            if size == 0:
                size = min(_MAX_UNSIZED_BYTES, self._section_end(start) - start)
                if at + 1 < len(self._starts):
                    size = min(size, int(self._starts[at + 1]) - start)
            if vaddr < start + size:
                name = self._name(int(row["name"]))
                return Symbol(name, start, start + size) if name else None
            if int(self._reach[at]) <= vaddr:
                return None
        return None

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
    """Return the functions' symbols in order of address, one for each address."""
    count = table.size // SYMBOL.itemsize
    if table.nobits or count == 0:
        return np.zeros(0, SYMBOL)
    if count > _MAX_SYMBOLS:
        raise ElfError(f"the table {table.name} claims {count} symbols")
    data = file.read_offset(table.offset, count * SYMBOL.itemsize)
    symbols = np.frombuffer(data, SYMBOL)
    kind, binding = symbols["info"] & 15, symbols["info"] >> 4
    is_code = np.zeros(count, bool)
    for segment in code.segments:
        if segment.executable:
            start, end = np.uint64(segment.vaddr), np.uint64(segment.vaddr + segment.memsz)
            is_code |= (symbols["value"] >= start) & (symbols["value"] < end)
    is_function = (kind == _FUNC) | (kind == _IFUNC) | (kind == _NOTYPE)
    chosen = is_code & is_function & (symbols["section"] != 0) & (symbols["name"] != 0)
    symbols, kind, binding = symbols[chosen], kind[chosen], binding[chosen]
    # Of several at one address prefer one with a size, a function, a global name, the first.
    rank = np.select([binding == _GLOBAL, binding == _WEAK], [0, 1], 2)
    order = np.lexsort(
        (symbols["name"], rank, kind == _NOTYPE, symbols["size"] == 0, symbols["value"])
    )
    symbols = symbols[order]
    first = np.ones(len(symbols), bool)
    first[1:] = symbols["value"][1:] != symbols["value"][:-1]
    symbols = symbols[first]
    # A label inside a function that has a size is not a function.
    ends = _ends(symbols)
    inside = np.zeros(len(symbols), bool)
    inside[1:] = np.maximum.accumulate(ends)[:-1] > symbols["value"][1:]
    result: npt.NDArray[np.void] = symbols[~(inside & (symbols["size"] == 0))]
    return result


def _ends(symbols: npt.NDArray[np.void]) -> npt.NDArray[np.uint64]:
    """Return where each symbol ends, at most at the end of the address space."""
    starts: npt.NDArray[np.uint64] = symbols["value"].astype(np.uint64)
    sizes: npt.NDArray[np.uint64] = symbols["size"].astype(np.uint64)
    ends: npt.NDArray[np.uint64] = starts + np.minimum(sizes, np.uint64((1 << 64) - 1) - starts)
    return ends


def _dynamic_tables(elf: ElfFile) -> tuple[Section, Section] | None:
    """Return the dynamic symbols and their strings of a file without section headers.

    PT_DYNAMIC has their addresses; None if it lacks one. Raises ElfError.
    """
    if elf.dynamic is None:
        return None
    offset, size = elf.dynamic
    data = elf.read_offset(offset, min(size, _MAX_DYNAMIC_BYTES) & ~15)
    tags: dict[int, int] = {}
    for tag, value in struct.iter_unpack("<QQ", data):
        if tag == _DT_NULL:
            break
        tags.setdefault(tag, value)
    if not {_DT_SYMTAB, _DT_STRTAB, _DT_STRSZ} <= tags.keys():
        return None
    if _DT_HASH in tags:
        (count,) = struct.unpack("<I", elf.read(tags[_DT_HASH] + 4, 4))
    elif _DT_GNU_HASH in tags:
        count = _count_of_gnu_hash(elf, tags[_DT_GNU_HASH])
    else:
        return None
    symbols, strings = (elf.vaddr_to_offset(tags[tag]) for tag in (_DT_SYMTAB, _DT_STRTAB))
    return (
        Section(".dynsym", tags[_DT_SYMTAB], symbols, count * SYMBOL.itemsize, 0),
        Section(".dynstr", tags[_DT_STRTAB], strings, tags[_DT_STRSZ], 0),
    )


def _count_of_gnu_hash(elf: ElfFile, vaddr: int) -> int:
    """Return how many symbols there are: one more than the last of the last chain.

    Raises ElfError.
    """
    buckets, first, bloom_words, _ = struct.unpack("<IIII", elf.read(vaddr, 16))
    if max(buckets, bloom_words) > _MAX_SYMBOLS:
        raise ElfError(f"the table .gnu.hash claims {max(buckets, bloom_words)} entries")
    at = vaddr + 16 + 8 * bloom_words
    last = int(np.frombuffer(elf.read(at, 4 * buckets), "<u4").max(initial=0))
    if last < first:
        return int(first)  # no chain has a symbol
    chain = at + 4 * buckets + 4 * (last - first)
    for number in range(last, last + _MAX_CHAIN):
        (word,) = struct.unpack("<I", elf.read(chain + 4 * (number - last), 4))
        if word & 1:
            return number + 1
    raise ElfError("a chain of .gnu.hash does not end")
