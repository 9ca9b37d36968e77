"""A table inside an ELF file, read in blocks when they are needed, not copied as a whole."""

import threading
from typing import Final

from symbolizer.elf.file import ElfFile
from symbolizer.errors import ElfError, GoTableError

BLOCK_BYTES: Final = 1 << 15
_MAX_BLOCKS: Final = 128


class FileTable:
    """`size` bytes of a file from `offset`, called `name` in errors.

    Keeps at most 4 MiB of blocks. Positions count from the table's start; each access outside the
    table raises GoTableError. Any thread may use it.
    """

    def __init__(self, elf: ElfFile, offset: int, size: int, name: str) -> None:
        self._elf = elf
        self._offset = offset
        self.size = size
        self.name = name
        self._blocks: dict[int, bytes] = {}

    def read(self, position: int, size: int) -> bytes:
        """Return exactly `size` bytes at `position`; GoTableError if they are not all inside."""
        if position < 0 or position + size > self.size:
            raise GoTableError(
                f"the table {self.name} of {self.size} bytes has no {size} bytes at {position:#x}"
            )
        block, start = self._block(position)
        if start + size <= len(block):
            return block[start : start + size]
        return self._read_file(position, size)

    def window(self, position: int, at_least: int = 1) -> tuple[bytes, int]:
        """Return bytes, and the index in them that corresponds to `position`, without a copy.

        Behind the index are `at_least` bytes, or all up to the end of the table.
        """
        if not 0 <= position < self.size:
            raise GoTableError(f"the table {self.name} has no position {position:#x}")
        block, start = self._block(position)
        if start + min(at_least, self.size - position) <= len(block):
            return block, start
        return self._read_file(position, min(at_least, self.size - position)), 0

    def terminated(self, position: int, skip: int, limit: int) -> bytes:
        """Return the bytes from `position` to the next zero after `skip` bytes, without it.

        Raises GoTableError if there is none within `limit` bytes.
        """
        if not 0 <= position < self.size:
            raise GoTableError(f"the table {self.name} has no position {position:#x}")
        data, start = self._block(position)
        end = data.find(0, start + skip, start + limit)
        if end < 0:
            data, start = self.window(position, limit)
            end = data.find(0, start + skip, start + limit)
            if end < 0:
                raise GoTableError(f"the entry at {position:#x} of {self.name} does not end")
        return data[start:end]

    def string(self, position: int, limit: int) -> str:
        """Return the NUL-terminated string at `position`, of at most `limit` bytes.

        Bytes that are not UTF-8 come back as replacement characters.
        """
        return self.terminated(position, 0, limit).decode("utf-8", "replace")

    def read_uncached(self, position: int, size: int) -> bytes:
        """Return exactly `size` bytes at `position`, for a pass over the whole table."""
        if position < 0 or position + size > self.size:
            raise GoTableError(f"the table {self.name} has no {size} bytes at {position:#x}")
        return self._read_file(position, size)

    def _block(self, position: int) -> tuple[bytes, int]:
        number, start = divmod(position, BLOCK_BYTES)
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= _MAX_BLOCKS:
                self._blocks.clear()
            first = number * BLOCK_BYTES
            block = self._read_file(first, min(BLOCK_BYTES, self.size - first))
            self._blocks[number] = block
        return block, start

    def _read_file(self, position: int, size: int) -> bytes:
        try:
            return self._elf.read_offset(self._offset + position, size)
        except ElfError as error:
            raise GoTableError(f"the table {self.name} cannot be read: {error}") from error


class Ledger:
    """Detects a table whose entries overlap; no linker writes such a table. For one thread.

    In a hostile table a million references can point into the same megabyte. The entries of an
    honest one, each read once, are together no longer than the table.
    """

    def __init__(self, table: FileTable) -> None:
        self._table = table
        self._left = table.size
        self._seen: set[int] = set()

    def charge(self, position: int, size: int) -> None:
        """Count the `size` bytes of the entry at `position`, once. Raises GoTableError."""
        if position not in self._seen:
            self._seen.add(position)
            self._left -= size
            if self._left < 0:
                raise GoTableError(f"the entries of {self._table.name} overlap")


class StringTable:
    """The NUL-terminated strings of a table; each is kept once it has been read.

    Any thread may use it.
    """

    def __init__(self, table: FileTable, limit: int) -> None:
        """Strings have at most `limit` bytes."""
        self._table = table
        self._limit = limit
        self._lock = threading.Lock()
        self._ledger = Ledger(table)
        self._strings: dict[int, str] = {}

    def at(self, position: int) -> str:
        """Return the string at `position`; the same object each time. Raises GoTableError."""
        string = self._strings.get(position)
        if string is None:
            with self._lock:  # the ledger counts each string once, and all get the same object
                string = self._table.string(position, self._limit)
                self._ledger.charge(position, len(string))
                string = self._strings.setdefault(position, string)
        return string
