"""How the C library keeps freed memory: blocks that are large go back to the kernel at once."""

from __future__ import annotations

import ctypes
from typing import Final

LARGE_BYTES: Final = 1 << 18
_M_MMAP_THRESHOLD: Final = -3  # malloc.h


def give_back_large_blocks() -> None:
    """Have blocks of LARGE_BYTES and more mapped apart, for good; without glibc nothing happens.

    Otherwise each one that is freed raises that bound up to its own size (32 MB at most): tables of
    the kernel, read for a moment by one thread and then another, leave holes in each thread's heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
