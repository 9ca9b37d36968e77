"""Where an ELF file's bytes come from: a file read with pread, or bytes in memory.

The file is never mapped. If a mapped file is truncated, the next access gets SIGBUS, and a
profiler that reads other users' files as root must survive that. A pread past the new end comes
back short, which is an error like any other.
"""

import os
import stat
from typing import Protocol

from symbolizer.errors import ElfError

MAX_READ_BYTES = 256 << 20
"""No table of a real program is larger, but a sparse file can claim any size."""


class ByteSource(Protocol):
    """Random access to a fixed number of bytes."""

    size: int

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes from `offset`; raise ElfError if they are not all there."""

    def close(self) -> None:
        """Release the file or the memory; reading afterwards raises ElfError."""


class FileSource:
    """A regular file, read with pread. Owns its descriptor."""

    def __init__(self, file: int | str | os.PathLike[str]) -> None:
        """Duplicate the descriptor `file`, or open the path `file`.

        Raises ElfError if the file cannot be opened or is not a regular file.
        """
        self._fd = -1
        try:
            if isinstance(file, int):
                self._fd = os.dup(file)
            else:
                # O_NONBLOCK: opening a FIFO must not wait for its writer.
                self._fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            status = os.fstat(self._fd)
        except OSError as error:
            self.close()
            raise ElfError(f"cannot open {_name(file)}: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise ElfError(f"{_name(file)} is not a regular file")
        self.size = status.st_size

    @property
    def fd(self) -> int:
        """The open file; -1 once it is closed."""
        return self._fd

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes from `offset`; raise ElfError if they are not all there."""
        _check_range(offset, size, self.size)
        try:
            data = os.pread(self._fd, size, offset)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), offset + len(data))
                if not more:
                    raise ElfError("the file was truncated while it was being read")
                data += more
        except OSError as error:
            raise ElfError(f"cannot read the file: {error.strerror}") from error
        return data

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class MemorySource:
    """Bytes that are already in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes from `offset`; raise ElfError if they are not all there."""
        _check_range(offset, size, self.size)
        return self._data[offset : offset + size]

    def close(self) -> None:
        """Forget the bytes."""
        self._data = b""
        self.size = 0


def _check_range(offset: int, size: int, total: int) -> None:
    if offset < 0 or size < 0 or offset + size > total:
        raise ElfError(
            f"bytes {offset:#x} to {offset + size:#x} lie outside the file of {total:#x} bytes"
        )
    if size > MAX_READ_BYTES:
        raise ElfError(f"a table of {size} bytes is larger than that of any real program")


def _name(file: int | str | os.PathLike[str]) -> str:
    return f"file descriptor {file}" if isinstance(file, int) else os.fspath(file)
