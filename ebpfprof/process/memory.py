"""The memory of a target, opened for reading only."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ebpfprof.errors import EbpfprofError, PermissionDenied, TargetGone
from ebpfprof.kernel.remote_memory import peek, process_vm_readv
from ebpfprof.process.process import Target
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:  # it takes time to import, and not every caller needs it
    import numpy as np
    import numpy.typing as npt

_MAX_PIECES = 1024  # UIO_MAXIOV
_ADDRESS_END = 1 << 63  # the largest offset of a file


class UnreadableMemory(EbpfprofError):  # noqa: N818 (reads better where it is raised)
    """Nothing is mapped there, or not all of it."""


class Memory(Closing):
    """Reads a target's memory while the target runs on.

    /proc/PID/mem stays bound to the program that ran when it was opened (Linux fs/proc/base.c,
    mem_open): after an exec, or if the pid is reused, it reads nothing.
    """

    def __init__(self, target: Target) -> None:
        """Open the memory of the very program that `target` pins.

        Raises TargetGone or PermissionDenied.
        """
        self.pid = target.pid
        try:
            self._fd = os.open(f"/proc/{target.reading_pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PermissionDenied(
                f"The kernel does not let this user read the memory of process {target.pid}: "
                "that takes CAP_SYS_PTRACE. Run ebpfprof as root."
            ) from error
        except OSError as error:
            raise TargetGone(self._gone()) from error
        # The path has only the pid: it was the pinned process if that still runs.
        if target.ending():
            self.close()
            raise TargetGone(self._gone())

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes from the runtime address.

        Raises UnreadableMemory unless all of them are mapped, TargetGone once the target has
        ended or called exec.
        """
        try:
            data = os.pread(self._fd, size, address) if 0 <= address < _ADDRESS_END else None
        except OSError:
            data = None
        if data is not None and len(data) == size:
            return data
        if data == b"":
            raise TargetGone(self._gone())
        raise UnreadableMemory(f"Process {self.pid} has no {size} bytes of memory at {address:#x}.")

    def read_records(
        self, addresses: npt.NDArray[np.uint64], kind: np.dtype[Any]
    ) -> npt.NDArray[Any]:
        """Read a struct at each of the runtime addresses; unreadable ones are all 0.

        Takes a fraction of the time of as many calls of read(). Raises TargetGone as that does.
        """
        import numpy as np

        found = np.zeros(len(addresses), kind)
        pieces = np.empty((len(addresses), 2), np.uint64)
        pieces[:, 0], pieces[:, 1] = addresses, kind.itemsize
        done = 0
        while done < len(addresses):
            count = min(_MAX_PIECES, len(addresses) - done)
            local = np.array([found[done:].ctypes.data, count * kind.itemsize], np.uint64)
            there = pieces[done : done + count]
            data = self.gather(local.ctypes.data, 1, there.ctypes.data, count)
            # The call ends at the first struct that it can't read, or only in part.
            whole = max(0, data) // kind.itemsize
            if whole < count:
                found[done + whole] = np.zeros(1, kind)[0]
                whole += 1
            done += whole
        with suppress(UnreadableMemory):  # nothing is there; the call took a pid, which may be
            self.read(0, 1)  # another process's by now: then this raises TargetGone
        return found

    def gather(self, here: int, here_count: int, there: int, there_count: int) -> int:
        """Read many pieces by one system call; return the number of bytes read.

        `here` and `there` are the addresses of so many iovecs, of ours and of the target's
        (process_vm_readv(2)). The call ends at the first piece that can't be read. It takes a pid,
        which may be another process's by now: check with read() afterwards.
        """
        return process_vm_readv(self.pid, here, here_count, there, there_count, 0)

    def bring(self, address: int, size: int) -> None:
        """Have the kernel bring `size` bytes from the runtime address into memory: see peek()."""
        peek(self.pid, address, size)

    def close(self) -> None:
        """Close it; reading afterwards raises UnreadableMemory."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _gone(self) -> str:
        return (
            f"The memory of process {self.pid} can no longer be read: it ended, or replaced "
            "itself by another program (exec)."
        )
