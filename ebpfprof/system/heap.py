"""How the C library keeps freed memory: less or more than usual; without glibc nothing happens.

Python's own small objects are apart from that.
"""

from __future__ import annotations

import ctypes
from typing import Final

LARGE_BYTES: Final = 1 << 18
_HEAPS: Final = 2
# malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_TRIM_THRESHOLD: Final = -1
_M_ARENA_MAX: Final = -8
_KEPT_BYTES: Final = 1 << 30


def give_back_large_blocks() -> None:
    """Map blocks of LARGE_BYTES and more apart, and let threads share heaps, for good.

    Otherwise each freed block raises that bound up to its own size (32 MB at most): the kernel's
    tables, which one thread after the other reads for a moment, leave holes in each thread's heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _HEAPS)


def keep_large_blocks() -> None:
    """Use freed blocks of up to 512 MiB again, for good, in place of new ones from the kernel.

    For work with many large arrays, one after the other: the kernel would have to clear each.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back_free_pages() -> None:
    """Give the pages back to the kernel that no block uses. Takes some milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
