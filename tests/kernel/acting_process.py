"""A process that goes on while it is read, at the read that a test chooses: a race, each time."""

from __future__ import annotations

from collections.abc import Callable

from ebpfprof.process.pages import Pages
from ebpfprof.process.process import Target

Behind = Callable[[int, bytes], object]
"""Gets the address and the bytes of a read; of many pieces 0 and b""."""


class ActingPages:
    """The pages of a process, and what happens behind each read of them."""

    def __init__(self, pages: Pages, behind: Behind) -> None:
        self._pages, self._behind = pages, behind

    def read(self, address: int, size: int) -> bytes:
        data = self._pages.read(address, size)
        self._behind(address, data)
        return data

    def read_pieces(self, here: int, here_count: int, there: int, there_count: int) -> int:
        count = self._pages.read_pieces(here, here_count, there, there_count)
        self._behind(0, b"")
        return count

    def require(self) -> None:
        self._pages.require()

    def bring(self, address: int, size: int) -> None:
        self._pages.bring(address, size)

    def close(self) -> None:
        self._pages.close()


class ActingProcess(Target):
    """A process, open, in which `behind` is called behind each read of its memory."""

    def __init__(self, pid: int, behind: Behind) -> None:
        self._behind = behind
        super().__init__(pid)

    def open_pages(self) -> Pages:
        return ActingPages(super().open_pages(), self._behind)


def sample_begun(reads: int) -> int:
    """Which sample has begun, of 0 and up, once samples have read runtime.allgs so many times.

    The first reads it three times, each other one twice: before the goroutines, and after them.
    """
    return max(0, reads - 2) // 2
