"""Where the bytes of a target's memory come from: the kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

from ebpfprof.errors import PermissionDenied, TargetGone
from ebpfprof.kernel.remote_memory import peek, process_vm_readv

if TYPE_CHECKING:
    from collections.abc import Callable

_ADDRESS_END: Final = 1 << 63  # the largest offset of a file


class Pages(Protocol):
    """What Memory reads from: a process, or what was saved of one (tests/images)."""

    def read(self, address: int, size: int) -> bytes:
        """Up to `size` bytes from the runtime address, fewer where not all is mapped.

        Raises TargetGone once the target has ended or called exec.
        """

    def read_pieces(self, here: int, here_count: int, there: int, there_count: int) -> int:
        """See Memory.read_pieces."""

    def require(self) -> None:
        """Raise TargetGone once the target has ended or called exec."""

    def bring(self, address: int, size: int) -> None:
        """See Memory.bring."""

    def close(self) -> None:
        """Read nothing from now on."""


class KernelPages:
    """The pages of a running process.

    /proc/PID/mem stays bound to the program that ran when it was opened (Linux fs/proc/base.c,
    mem_open): after an exec, or if the pid is reused, it reads nothing.
    """

    def __init__(self, pid: int, reading_pid: int, ending: Callable[[], object]) -> None:
        """Open the memory of process `pid`, that of its thread `reading_pid`.

        `ending` returns something once the process has ended or called exec. Raises TargetGone or
        PermissionDenied.
        """
        self._pid = pid
        try:
            self._fd = os.open(f"/proc/{reading_pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PermissionDenied(
                f"The kernel does not let this user read the memory of process {pid}: "
                "that takes CAP_SYS_PTRACE. Run ebpfprof as root."
            ) from error
        except OSError as error:
            raise TargetGone(self._gone()) from error
        # The path has only the pid: it was the pinned process if that still runs.
        if ending():
            self.close()
            raise TargetGone(self._gone())

    def read(self, address: int, size: int) -> bytes:
        """Up to `size` bytes from the runtime address. Raises TargetGone."""
        try:
            data = os.pread(self._fd, size, address) if 0 <= address < _ADDRESS_END else None
        except OSError:
            data = None
        if data == b"" and size:
            raise TargetGone(self._gone())
        return data or b""

    def read_pieces(self, here: int, here_count: int, there: int, there_count: int) -> int:
        """Read by the pid, which may be another process's by now: see require()."""
        return process_vm_readv(self._pid, here, here_count, there, there_count, 0)

    def require(self) -> None:
        """Raise TargetGone once the target has ended or called exec."""
        self.read(0, 1)  # nothing is mapped there

    def bring(self, address: int, size: int) -> None:
        """Have the kernel bring pages into memory: see peek()."""
        peek(self._pid, address, size)

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _gone(self) -> str:
        return (
            f"The memory of process {self._pid} can no longer be read: it ended, or replaced "
            "itself by another program (exec)."
        )
