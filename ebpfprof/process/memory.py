"""The memory of a target, opened for reading only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ebpfprof.errors import EbpfprofError

if TYPE_CHECKING:  # it takes time to import, and not every caller needs it
    import numpy as np
    import numpy.typing as npt

    from ebpfprof.process.pages import Pages

_MAX_PIECES: Final = 1024  # UIO_MAXIOV


class UnreadableMemory(EbpfprofError):  # noqa: N818 (reads better where it is raised)
    """Nothing is mapped there, or not all of it."""


class Memory:
    """Reads a target's memory while the target keeps running. Any thread may use it: see
    Target.memory.

    It has no state beside its pages.
    """

    def __init__(self, pid: int, pages: Pages) -> None:
        self.pid = pid
        self._pages = pages

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes from the runtime address.

        Raises UnreadableMemory unless all of them are mapped, TargetGone once the target has
        ended or called exec.
        """
        data = self._pages.read(address, size)
        if len(data) == size:
            return data
        raise UnreadableMemory(f"Process {self.pid} has no {size} bytes of memory at {address:#x}.")

    def read_records(
        self, addresses: npt.NDArray[np.uint64], kind: np.dtype[Any]
    ) -> npt.NDArray[Any]:
        """Read a struct at each of the runtime addresses; unreadable ones are all 0.

        Takes a fraction of the time of as many calls of read(). Raises TargetGone as that does.
        """
        import numpy as np

        records = np.zeros(len(addresses), kind)
        pieces = np.empty((len(addresses), 2), np.uint64)
        pieces[:, 0], pieces[:, 1] = addresses, kind.itemsize
        done = 0
        while done < len(addresses):
            count = min(_MAX_PIECES, len(addresses) - done)
            local = np.array([records[done:].ctypes.data, count * kind.itemsize], np.uint64)
            there = pieces[done : done + count]
            data = self.read_pieces(local.ctypes.data, 1, there.ctypes.data, count)
            # The call ends at the first struct that it can't read, or only in part.
            whole = max(0, data) // kind.itemsize
            if whole < count:
                records[done + whole] = np.zeros(1, kind)[0]
                whole += 1
            done += whole
        self._pages.require()
        return records

    def read_pieces(self, here: int, here_count: int, there: int, there_count: int) -> int:
        """Read many pieces by one system call, as process_vm_readv(2) does.

        `here` and `there` are the addresses of iovecs, at most 1024 of each: pairs of an address
        and a size in bytes. Returns how many bytes were read, less than 0 for none; it ends at the
        first piece that it can't read. A caller that must know that it was this target calls read()
        afterwards, which raises TargetGone.
        """
        return self._pages.read_pieces(here, here_count, there, there_count)

    def bring(self, address: int, size: int) -> None:
        """Have the kernel bring `size` bytes from the runtime address into memory: see peek()."""
        self._pages.bring(address, size)
