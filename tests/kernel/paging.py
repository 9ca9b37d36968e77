"""Memory that is paged out: what the kernel does when it has too little, done to one process."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_SYS_PROCESS_MADVISE = 440  # arch/x86/entry/syscalls/syscall_64.tbl
_MADV_PAGEOUT = 21  # include/uapi/asm-generic/mman-common.h
_SWAP_BYTES = 128 << 20
_MAX_RANGES = 1024  # UIO_MAXIOV
_RANGE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (....) .*?(\[.*\])?$", re.MULTILINE)

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def swap(folder: Path) -> Iterator[None]:
    """Give the kernel somewhere to put memory: a file in a folder that is no tmpfs."""
    file = folder / "swap"
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.posix_fallocate(fd, 0, _SWAP_BYTES)
    os.close(fd)
    subprocess.run(["mkswap", "-q", file], check=True)
    subprocess.run(["swapon", file], check=True)
    try:
        yield
    finally:
        subprocess.run(["swapoff", file], check=True)
        file.unlink()


def page_out(pid: int) -> None:
    """Page out all memory of a process; what it needs of it comes back when it is touched."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    ranges = [
        (int(start, 16), int(end, 16) - int(start, 16))
        for start, end, rights, name in _RANGE.findall(maps)
        if rights[0] == "r" and name not in ("[vvar]", "[vdso]", "[vsyscall]", "[uprobes]")
    ]
    page_out_ranges(pid, ranges[:_MAX_RANGES])


def page_out_ranges(pid: int, ranges: Sequence[tuple[int, int]]) -> None:
    """Page out parts of a process's memory: where they begin, and how many bytes they are."""
    pidfd = os.pidfd_open(pid)
    try:
        for start, size in ranges:
            vector = ctypes.create_string_buffer(struct.pack("<QQ", start, size))
            # Some kinds of memory can't be paged out: the call fails for these alone.
            _libc.syscall(_SYS_PROCESS_MADVISE, pidfd, vector, 1, _MADV_PAGEOUT, 0)
    finally:
        os.close(pidfd)


def swapped_bytes(pid: int) -> int:
    """How much of a process's memory is in the swap now."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kib,) = re.findall(r"^VmSwap:\s*(\d+) kB$", status, re.MULTILINE)
    return int(kib) << 10
