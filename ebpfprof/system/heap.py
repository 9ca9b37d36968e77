"""How the C library keeps freed memory: large blocks go back to the kernel at once."""

from __future__ import annotations

import ctypes
from typing import Final

LARGE_BYTES: Final = 1 << 18
_M_MMAP_THRESHOLD: Final = -3  # malloc.h


def give_back_large_blocks() -> None:
    """Map blocks of LARGE_BYTES and more apart, for good; without glibc nothing happens.

    Otherwise each freed block raises that bound up to its own size (32 MB at most): the kernel's
    tables, which one thread after the other reads for a moment, leave holes in each thread's heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
