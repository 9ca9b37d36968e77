"""Package variables by address: by symbols, by pointers in the file, by the code that uses them.

The value that `var cache = &Cache{}` points to has no name. The compiler puts it into the data
segment, and the variable has its address already in the file (cmd/compile/internal/staticinit,
Go 1.19 to 1.27). Go's linker gives it no symbol; other linkers keep the symbol "main..stmp_0".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from symbolizer.elf.file import ElfFile
from symbolizer.elf.symbols import SYMBOL
from symbolizer.errors import ElfError

_OBJECT: Final = 1
_NAMELESS: Final = "..stmp_"
_MAX_NAME_BYTES = 1 << 12
_MAX_OVERLAPPING = 8
_MAX_DATA_BYTES = 64 << 20
_MAX_STATIC_BYTES = 1 << 20
_MAX_POINTERS = 16
_MAX_LOADS = 256

# REX.W with or without REX.R, the opcode, and a ModRM byte with mod 00 and r/m 101.
_LOAD = re.compile(rb"[\x48\x4c]\x8b[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](.{4})", re.DOTALL)

_Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol: its address as linked, and its size in bytes."""

    name: str
    address: int
    size: int


class Symbols:
    """The variables of .symtab by address. Reads nothing before the first lookup."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._table: npt.NDArray[np.void] | None = None

    def variable_at(self, address: int) -> Symbol | None:
        """Return the named variable at the address; None without one or without a symbol table.

        Raises ElfError if its name cannot be read.
        """
        if self._table is None:
            self._table = self._read()
        table = self._table
        after = int(np.searchsorted(table["value"], np.uint64(address), side="right"))
        for index in range(after - 1, max(-1, after - 1 - _MAX_OVERLAPPING), -1):
            start, size = int(table["value"][index]), int(table["size"][index])
            if address - start < size:
                name = self._name(int(table["name"][index]))
                return None if _NAMELESS in name else Symbol(name, start, size)
        return None

    def _name(self, at: int) -> str:
        section = self._elf.sections.get(".strtab")
        if section is None or at >= section.size:
            raise ElfError("a symbol's name is outside .strtab")
        size = min(_MAX_NAME_BYTES, section.size - at)
        return (
            self._elf.read_offset(section.offset + at, size)
            .split(b"\0", 1)[0]
            .decode("utf-8", "replace")
        )

    def _read(self) -> npt.NDArray[np.void]:
        section = self._elf.sections.get(".symtab")
        table = np.empty(0, SYMBOL)
        if section is not None:
            try:
                size = section.size // SYMBOL.itemsize * SYMBOL.itemsize
                table = np.frombuffer(self._elf.read_offset(section.offset, size), SYMBOL)
            except ElfError:
                pass  # As if the program were stripped.
        table = table[(table["info"] & 0xF == _OBJECT) & (table["size"] > 0)]
        order = np.argsort(table["value"], kind="stable")
        self._elf.keep(table.nbytes)
        ascending: npt.NDArray[np.void] = table[order]
        return ascending


class StaticPointers:
    """Words of the data segment that point into it. Reads nothing before the first lookup."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._words: tuple[_Words, _Words] | None = None

    def near(self, address: int) -> Iterator[tuple[int, int]]:
        """Yield (value, address) of the words that point nearest to `address`, at or below it.

        Up to 16, nearest first, at most 1 MiB below it.
        """
        if self._words is None:
            self._words = self._read()
        values, addresses = self._words
        first = np.searchsorted(values, np.uint64(max(0, address - _MAX_STATIC_BYTES)))
        after = np.searchsorted(values, np.uint64(address), side="right")
        for index in islice(range(int(after) - 1, int(first) - 1, -1), _MAX_POINTERS):
            yield int(values[index]), int(addresses[index])

    def _read(self) -> tuple[_Words, _Words]:
        """Return the words in ascending order, and their addresses."""
        values, addresses = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for segment in self._elf.segments:
            if not segment.writable or segment.vaddr % 8:
                continue
            if not 0 < segment.filesz <= _MAX_DATA_BYTES:
                continue
            try:
                data = self._elf.read_offset(segment.offset, segment.filesz & ~7)
            except ElfError:
                continue
            words = np.frombuffer(data, "<u8")
            last = np.uint64(segment.vaddr + segment.memsz - 1)
            inside = np.flatnonzero((words >= np.uint64(segment.vaddr)) & (words <= last))
            self._elf.keep(2 * inside.nbytes)
            values.append(words[inside])
            addresses.append(inside.astype(np.uint64) * np.uint64(8) + np.uint64(segment.vaddr))
        joined, at = np.concatenate(values), np.concatenate(addresses)
        order = np.argsort(joined, kind="stable")
        return joined[order], at[order]


def loads(elf: ElfFile, start: int, code: bytes) -> list[tuple[int, int]]:
    """Return the places where code at `start` loads a word of writable data: (pc, its address).

    Only `mov r64, [rip + displacement]`, with which Go's compiler loads a pointer from a package
    variable. At most 256.
    """
    targets: list[tuple[int, int]] = []
    for match in _LOAD.finditer(code):
        target = start + match.end() + int.from_bytes(match[1], "little", signed=True)
        if is_data(elf, target):
            targets.append((start + match.start(), target))
            if len(targets) == _MAX_LOADS:
                break
    return targets


def is_data(elf: ElfFile, address: int) -> bool:
    """Whether the address, as linked, is in the program's writable data."""
    return any(
        segment.writable and segment.vaddr <= address < segment.vaddr + segment.memsz
        for segment in elf.segments
    )
