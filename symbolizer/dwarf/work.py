"""Limits of the work for a lookup: a hostile file must not be able to make it endless."""

from symbolizer.dwarf.forms import DwarfError
from symbolizer.elf.file import ElfFile

_CHECK_AFTER = 1 << 12


class Work:
    """Counts what is read of a file's DWARF, and the memory that is kept of it."""

    def __init__(self, elf: ElfFile, limit: int) -> None:
        """Allow `limit` entries, attributes, ranges and rows of lines for each lookup."""
        self._elf = elf
        self._limit = self._left = limit
        self._unchecked = 0

    def renew(self) -> None:
        """Begin the next lookup."""
        self._left = self._limit

    def spend(self, amount: int) -> None:
        """Count `amount` of them. Raises DwarfError if the lookup exceeds its limit.

        Raises TooMuchToRead if the files of the process exceed theirs.
        """
        self._left -= amount
        if self._left < 0:
            raise DwarfError("the DWARF has more to read than any lookup in a real program needs")
        self._unchecked += amount
        if self._unchecked >= _CHECK_AFTER:
            self._unchecked = 0
            self._elf.allowance.check()

    def keep(self, count: int, size_bytes: int) -> None:
        """Count `count` things of a size in bytes that are kept. Raises TooMuchToRead."""
        self._elf.keep(count * size_bytes)
