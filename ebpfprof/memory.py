"""The memory of a target, opened for reading only."""

import os
from typing import Self

from ebpfprof.errors import EbpfprofError, PermissionDenied, TargetGone
from ebpfprof.target import Target

_ADDRESS_END = 1 << 63  # the largest offset of a file


class UnreadableMemory(EbpfprofError):  # noqa: N818 (reads better where it is raised)
    """Nothing is mapped there, or not all of it."""


class Memory:
    """What a target has in its memory at this moment; the target runs on meanwhile.

    /proc/PID/mem stays bound to the program that ran when it was opened (Linux fs/proc/base.c,
    mem_open): after an exec, or under a reused pid, it reads nothing.
    """

    def __init__(self, target: Target) -> None:
        """Open the memory of the very program that `target` pins.

        Raises TargetGone or PermissionDenied.
        """
        self._pid = target.pid
        try:
            self._fd = os.open(f"/proc/{target.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PermissionDenied(
                f"The kernel does not let this user read the memory of process {target.pid}: "
                "that takes CAP_SYS_PTRACE. Run ebpfprof as root."
            ) from error
        except OSError as error:
            raise TargetGone(self._gone()) from error
        # /proc goes by the number: it was that process if the pinned one still lives.
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
        raise UnreadableMemory(
            f"Process {self._pid} has no {size} bytes of memory at {address:#x}."
        )

    def close(self) -> None:
        """Close it; reading afterwards raises UnreadableMemory."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _gone(self) -> str:
        return (
            f"The memory of process {self._pid} can't be read any more: it ended, or replaced "
            "itself by another program (exec)."
        )
