"""Words of a position-independent file that the dynamic loader fills in.

Go's linker, GNU ld and gold also write the value in place. lld leaves zero there: only the
relocation has the value. Only relocations of the kind R_X86_64_RELATIVE are read, which a
program's pointers to its own tables have.
"""

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from symbolizer.elf.file import ElfFile
from symbolizer.errors import ElfError

_RELATIVE: Final = 8
_RELA = np.dtype([("vaddr", "<u8"), ("info", "<u8"), ("addend", "<u8")])
_DT_NULL, _DT_RELA, _DT_RELASZ = 0, 7, 8
_DYNAMIC_ENTRY = struct.Struct("<qQ")
_MAX_DYNAMIC_BYTES = 1 << 14
_MAX_RELOCATIONS = 2 << 20

_Addresses = npt.NDArray[np.uint64]


class RelocatedWords:
    """Reads 8-byte words as they are once the program is loaded at address 0.

    The relocations are read once a word is zero in the file, which is rare.
    """

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._relocations: tuple[_Addresses, _Addresses] | None = None

    def read(self, vaddr: int, count: int) -> tuple[int, ...]:
        """Return `count` words from the address; ElfError if they are not all in the file."""
        words = struct.unpack(f"<{count}Q", self._elf.read(vaddr, 8 * count))
        if not self._elf.is_pie or all(words):
            return words
        return tuple(word or self._relocated(vaddr + 8 * i) for i, word in enumerate(words))

    def addresses_of(self, value: int, limit: int) -> list[int]:
        """Return up to `limit` addresses of words that a relocation sets to `value`."""
        vaddrs, addends = self._load()
        addresses: list[int] = vaddrs[addends == value][:limit].tolist()
        return addresses

    def _relocated(self, vaddr: int) -> int:
        vaddrs, addends = self._load()
        index = int(np.searchsorted(vaddrs, vaddr))
        return int(addends[index]) if index < len(vaddrs) and vaddrs[index] == vaddr else 0

    def _load(self) -> tuple[_Addresses, _Addresses]:
        """Return the addresses, ascending, and their values; none if they are unreadable."""
        if self._relocations is None:
            try:
                table = self._read_table()
            except ElfError:
                table = np.empty(0, _RELA)
            table = table[(table["info"] & 0xFFFFFFFF) == _RELATIVE]
            table = table[np.argsort(table["vaddr"], kind="stable")]
            self._relocations = table["vaddr"].copy(), table["addend"].copy()
        return self._relocations

    def _read_table(self) -> npt.NDArray[np.void]:
        if self._elf.dynamic is None:
            return np.empty(0, _RELA)
        offset, size = self._elf.dynamic
        size = min(size, _MAX_DYNAMIC_BYTES) // _DYNAMIC_ENTRY.size * _DYNAMIC_ENTRY.size
        tags: dict[int, int] = {}
        for tag, value in _DYNAMIC_ENTRY.iter_unpack(self._elf.read_offset(offset, size)):
            if tag == _DT_NULL:
                break
            tags.setdefault(tag, value)
        count = tags.get(_DT_RELASZ, 0) // _RELA.itemsize
        if not count or count > _MAX_RELOCATIONS or _DT_RELA not in tags:
            return np.empty(0, _RELA)
        return np.frombuffer(self._elf.read(tags[_DT_RELA], count * _RELA.itemsize), _RELA)
