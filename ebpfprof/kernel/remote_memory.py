"""Reads the memory of another process by a system call that takes its pid."""

from __future__ import annotations

import ctypes

process_vm_readv = ctypes.CDLL(None, use_errno=True).process_vm_readv
"""The system call, with addresses of iovecs: pid, ours, how many, theirs, how many, 0."""
process_vm_readv.restype = ctypes.c_ssize_t
process_vm_readv.argtypes = [
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_ulong,
]


def peek(pid: int, address: int, size: int) -> bytes:
    """The memory of process `pid` at a runtime address: up to `size` bytes, none if unreadable.

    Waits until a disk or file system brings the pages, for ever if they never come. The target
    does not wait for us: unlike a read of /proc/PID/mem, this does not hold its mmap_lock meanwhile
    (Linux mm/process_vm_access.c, mm/gup.c).
    """
    into = ctypes.create_string_buffer(size)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(into), size)
    there = (ctypes.c_size_t * 2)(address, size)
    count = process_vm_readv(pid, here, 1, there, 1, 0)
    return into.raw[: max(0, count)]
