"""The bytes of a target's code where probes are, and whether they were restored."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from ebpfprof.kernel.remote_memory import peek

_BREAKPOINT: Final = b"\xcc"
_KERNEL_LOG: Final = "/dev/kmsg"
_MAX_RECORD_BYTES: Final = 8192
_WARNING: Final = 4  # include/linux/kern_levels.h


class ProbeText:
    """Bytes of a process's code as they were before our probes were there."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: dict[int, bytes] = {}  # by runtime address

    def note(self, addresses: Collection[int]) -> None:
        """Note the bytes at addresses without probes of ours; known addresses keep theirs."""
        for address in addresses:
            if address not in self._before:
                self._before[address] = peek(self._pid, address, 1)

    def breakpoints(self) -> list[int]:
        """Addresses of breakpoints that were not there before: ours, or another profiler's.

        None once the process has ended.
        """
        return [
            address
            for address, before in self._before.items()
            if before not in (b"", _BREAKPOINT) and peek(self._pid, address, 1) == _BREAKPOINT
        ]


class KernelLog:
    """The kernel's messages, from now on, about breakpoints that it could not remove."""

    def __init__(self, name: str) -> None:
        """Count those about processes of this name."""
        # uprobe_warn(), kernel/events/uprobes.c
        self._begin = f"uprobe: {name}:".encode()
        self._leaks = 0
        self._fd = -1
        with suppress(OSError):  # then leaks() is None
            self._fd = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)

    def leaks(self) -> int | None:
        """How many there were; None if we may not read the log."""
        if self._fd < 0:
            return None
        while True:
            try:
                record = os.read(self._fd, _MAX_RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten before they were read
                continue
            except OSError:  # that was the last one
                return self._leaks
            self._leaks += self._begin in record and b"leaking uprobe" in record


def warn_in_kernel_log(text: str) -> None:
    """Add a line to the kernel's log, next to the kernel's own message about the same."""
    with suppress(OSError):  # the user has the same text on stderr
        fd = os.open(_KERNEL_LOG, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, f"<{_WARNING}>ebpfprof: {text}\n".encode())
        finally:
            os.close(fd)
