"""Reads the memory of another process by a system call that takes its pid."""

from __future__ import annotations

import ctypes
import errno

from ebpfprof.system.first_thread import reading_pid

_process_vm_readv = ctypes.CDLL(None, use_errno=True).process_vm_readv
_process_vm_readv.restype = ctypes.c_ssize_t
_process_vm_readv.argtypes = [
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_ulong,
]


def process_vm_readv(
    pid: int, here: int, here_count: int, there: int, there_count: int, flags: int
) -> int:
    """The system call, with addresses of iovecs; also if the first thread of `pid` has ended."""
    count = int(_process_vm_readv(pid, here, here_count, there, there_count, flags))
    if count < 0 and ctypes.get_errno() == errno.ESRCH and (thread := reading_pid(pid)) != pid:
        count = int(_process_vm_readv(thread, here, here_count, there, there_count, flags))
    return count


def peek(pid: int, address: int, size: int) -> bytes:
    """The memory of process `pid` at a runtime address: up to `size` bytes, none if unreadable.

    Waits until a disk or file system brings the pages, for ever if they never come. The target
    does not wait for us: unlike a read of /proc/PID/mem, this does not hold its mmap_lock meanwhile
    (Linux mm/process_vm_access.c, mm/gup.c).
    """
    into = ctypes.create_string_buffer(size)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(into), size)
    there = (ctypes.c_size_t * 2)(address, size)
    count = process_vm_readv(pid, ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)
    return into.raw[: max(0, count)]
