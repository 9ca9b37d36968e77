"""What a question costs: a hostile file must not be able to make it cost any amount."""

from symbolizer.dwarf.forms import DwarfError
from symbolizer.elf.file import ElfFile

_CHECK_AFTER = 1 << 12


class Work:
    """Counts what is read of a file's DWARF, and what is kept of it."""

    def __init__(self, elf: ElfFile, limit: int) -> None:
        """Allow entries, attributes, ranges and rows of lines up to `limit` for a question."""
        self._elf = elf
        self._limit = self._left = limit
        self._unchecked = 0

    def renew(self) -> None:
        """Begin another question."""
        self._left = self._limit

    def spend(self, amount: int) -> None:
        """Count so many. Raises DwarfError if the question costs too much.

        Raises TooMuchToRead if all questions of the process do.
        """
        self._left -= amount
        if self._left < 0:
            raise DwarfError("the DWARF has more to read than any question needs")
        self._unchecked += amount
        if self._unchecked >= _CHECK_AFTER:
            self._unchecked = 0
            self._elf.allowance.check()

    def keep(self, count: int, size_bytes: int) -> None:
        """Count that so many things of a size are kept of the file. Raises TooMuchToRead."""
        self._elf.keep(count * size_bytes)
