"""What a probe costs on this machine, measured by passing one: the trap, and an empty BPF program.

It differs tenfold between machines: hypervisors, mitigations, the age of the kernel. And it is
nearly twice as much if the program has used its caches for other things since the last probe, as
programs do, than in a loop that does nothing but trap. So here each pass finds the caches full.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from statistics import median
from typing import Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.kernel.uprobes import own_probe

# mov %rdi,%rcx; nop; dec %rcx; jnz to the nop; ret. A nop is emulated, like what is probed.
_LOOP: Final = bytes.fromhex("4889f9 90 48ffc9 75fa c3")
_NOP_OFFSET: Final = 3
PASSES: Final = 80
_CACHES_BYTES: Final = 1 << 21

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def hit_ns() -> float | None:
    """What it costs a thread to pass a probe of ours, in ns, without what the program does there.

    Takes about 0.05 s, and 10 ms of CPU time. None if it can't be measured, for example if memory
    files can't be executed (vm.memfd_noexec), or if there is no difference.
    """
    try:
        return _hit_ns()
    except (OSError, EbpfprofError):
        return None


def _hit_ns() -> float | None:
    with _code(_LOOP) as (path, address):
        loop = ctypes.CFUNCTYPE(None, ctypes.c_long)(address)
        bare_ns = _usual_ns(loop)
        with own_probe(path, _NOP_OFFSET, runs_program=True):
            found_ns = _usual_ns(loop) - bare_ns
    return found_ns if found_ns > 0 else None


def _usual_ns(loop: ctypes._FuncPointer) -> float:
    """The median of what one pass takes, when the caches hold other data."""
    others = b"-" * _CACHES_BYTES
    times = []
    for _ in range(PASSES):
        others.find(b"x")  # reads all of it
        began_ns = time.perf_counter_ns()
        loop(1)
        times.append(time.perf_counter_ns() - began_ns)
    return median(times)


@contextlib.contextmanager
def _code(code: bytes) -> Iterator[tuple[str, int]]:
    """Map code into this process: the path of its file, and its address."""
    fd = os.memfd_create("calibration")
    try:
        os.write(fd, code)
        protection = mmap.PROT_READ | mmap.PROT_EXEC
        address = _libc.mmap(None, mmap.PAGESIZE, protection, mmap.MAP_PRIVATE, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        try:
            yield f"/proc/self/fd/{fd}", address
        finally:
            _libc.munmap(address, mmap.PAGESIZE)
    finally:
        os.close(fd)
