"""Package variables by address: by symbols, by pointers in the file, by the code that uses them.

What `var cache = &Cache{}` points to has no name. The compiler lays it into the data segment, and
the variable holds its address in the file already (cmd/compile/internal/staticinit, Go 1.19 to
1.27). Go's linker gives it no symbol; others leave it the symbol "main..stmp_0".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from symbolizer.elf import ElfFile
from symbolizer.errors import ElfError

_SYMBOL = np.dtype(
    [
        *(("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")),
        *(("value", "<u8"), ("size", "<u8")),
    ]
)
_OBJECT: Final = 1
_FUNC: Final = 2
_NAMELESS: Final = "..stmp_"
_MAX_NAME_BYTES = 1 << 12
_MAX_OVERLAPPING = 8
_MAX_DATA_BYTES = 64 << 20
_MAX_STATIC_BYTES = 1 << 20
_MAX_POINTERS = 16
_MAX_REFERENCES = 256

_Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol: its address as linked, and its size in bytes."""

    name: str
    address: int
    size: int


class Symbols:
    """.symtab by address. Reads nothing before the first question."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._tables: dict[int, npt.NDArray[np.void]] | None = None

    def variable_at(self, address: int) -> Symbol | None:
        """Return the named variable that the address lies in; None without a symbol table, too.

        Raises ElfError if its name cannot be read.
        """
        return self._at(address, _OBJECT)

    def function_at(self, address: int) -> Symbol | None:
        """Return the function that the address lies in, as `variable_at` does."""
        return self._at(address, _FUNC)

    def _at(self, address: int, kind: int) -> Symbol | None:
        if self._tables is None:
            self._tables = self._read()
        table = self._tables[kind]
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
            raise ElfError("a symbol's name lies outside of the symbol names")
        size = min(_MAX_NAME_BYTES, section.size - at)
        return (
            self._elf.read_offset(section.offset + at, size)
            .split(b"\0", 1)[0]
            .decode("utf-8", "replace")
        )

    def _read(self) -> dict[int, npt.NDArray[np.void]]:
        section = self._elf.sections.get(".symtab")
        table = np.empty(0, _SYMBOL)
        if section is not None:
            try:
                size = section.size // _SYMBOL.itemsize * _SYMBOL.itemsize
                table = np.frombuffer(self._elf.read_offset(section.offset, size), _SYMBOL)
            except ElfError:
                pass  # As if it were stripped.
        table = table[(table["size"] > 0) & (table["section"] > 0)]
        table = table[np.argsort(table["value"], kind="stable")]
        return {kind: table[table["info"] & 0xF == kind] for kind in (_OBJECT, _FUNC)}


class StaticPointers:
    """Words of the data segment that point into it. Reads nothing before the first question."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._words: tuple[_Words, _Words] | None = None

    def near(self, address: int) -> Iterator[tuple[int, int]]:
        """Yield (value, address) of the words that point closest before `address`, or to it.

        Up to 16, nearest first, none further than 1 MiB before it.
        """
        if self._words is None:
            self._words = self._read()
        values, addresses = self._words
        first, after = np.searchsorted(
            values, np.array([max(0, address - _MAX_STATIC_BYTES), address + 1], np.uint64)
        )
        for index in islice(range(int(after) - 1, int(first) - 1, -1), _MAX_POINTERS):
            yield int(values[index]), int(addresses[index])

    def _read(self) -> tuple[_Words, _Words]:
        """Return the words in ascending order, and their addresses."""
        values, addresses = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for segment in self._elf.segments:
            if not segment.writable or segment.vaddr % 8 or segment.filesz > _MAX_DATA_BYTES:
                continue
            try:
                data = self._elf.read_offset(segment.offset, segment.filesz & ~7)
            except ElfError:
                continue
            words = np.frombuffer(data, "<u8")
            inside = np.flatnonzero(
                (words >= segment.vaddr) & (words - segment.vaddr < segment.memsz)
            )
            values.append(words[inside])
            addresses.append(inside.astype(np.uint64) * np.uint64(8) + np.uint64(segment.vaddr))
        joined, at = np.concatenate(values), np.concatenate(addresses)
        order = np.argsort(joined, kind="stable")
        return joined[order], at[order]


def references(elf: ElfFile, start: int, code: bytes) -> list[tuple[int, int]]:
    """Return where code at the address `start` refers to writable data, and to which address.

    On x86-64, Go's code reaches its variables by a displacement from the end of the instruction,
    which is as a rule also the displacement's own end. Other bytes that look like one are found,
    too, but seldom: they would have to point into the data. No more than 256 are returned.
    """
    at = np.arange(max(0, len(code) - 3), dtype=np.int64)
    data = np.frombuffer(code, np.uint8)
    displacement = sum(data[i : i + len(at)].astype(np.uint32) << (8 * i) for i in range(4))
    targets = np.asarray(displacement, np.uint32).view(np.int32) + at + (start + 4)
    found: list[tuple[int, int]] = []
    for segment in elf.segments:
        if segment.writable:
            inside = (targets >= segment.vaddr) & (targets - segment.vaddr < segment.memsz)
            hits = np.flatnonzero(inside)[: _MAX_REFERENCES - len(found)].tolist()
            found += [(start + hit, int(targets[hit])) for hit in hits]
    return found


def is_data(elf: ElfFile, address: int) -> bool:
    """Whether the address, as linked, is one of the program's writable data."""
    return any(
        segment.writable and segment.vaddr <= address < segment.vaddr + segment.memsz
        for segment in elf.segments
    )
