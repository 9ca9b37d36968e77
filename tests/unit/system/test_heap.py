"""Freed memory goes back to the kernel, or is used again: asked in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

# Prints the bytes that are mapped apart before and after a block of 4 MB comes; before that one of
# 8 MB was freed, which by itself has blocks of 4 MB come out of a heap.
MAPPED_APART = """
import ctypes
{first}
class Info(ctypes.Structure):
    _fields_ = [(str(number), ctypes.c_size_t) for number in range(10)]
    mapped = property(lambda self: getattr(self, "4"))  # hblkhd
libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype = Info, ctypes.c_void_p
libc.free(ctypes.c_void_p(libc.malloc(8 << 20)))
before = libc.mallinfo2().mapped
libc.malloc(4 << 20)
print(libc.mallinfo2().mapped - before)
"""
OURS = "from ebpfprof.system.heap import give_back_large_blocks; give_back_large_blocks()"


def mapped_apart(first: str) -> int:
    code = MAPPED_APART.format(first=first)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_large_blocks_are_always_mapped_separately() -> None:
    assert mapped_apart("") == 0  # else there is nothing to show here
    assert mapped_apart(OURS) >= 4 << 20


# Prints the page faults of writing to a block that comes again and again.
FAULTS = """
import ctypes, resource
{first}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
for _ in range(10):
    block = ctypes.c_void_p(libc.malloc(64 << 20))
    ctypes.memset(block, 1, 64 << 20)
    libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
KEEP = "from ebpfprof.system.heap import keep_large_blocks; keep_large_blocks()"


def faults(first: str) -> int:
    code = FAULTS.format(first=first)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_large_blocks_are_used_again_when_asked() -> None:
    assert faults(KEEP) < faults("") / 4


# Prints how many bytes a heap keeps of blocks of 4 KB that were all freed but for the last one.
KEPT = """
import ctypes
class Info(ctypes.Structure):
    _fields_ = [(str(number), ctypes.c_size_t) for number in range(10)]
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
blocks = [ctypes.c_void_p(libc.malloc(4096)) for _ in range(4096)]
for block in blocks:
    ctypes.memset(block, 1, 4096)
for block in blocks[:-1]:
    libc.free(block)
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) << 12
before = resident()
from ebpfprof.system.heap import give_back_free_pages
give_back_free_pages()
print(before - resident())
"""


def test_free_pages_go_back_when_asked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KEPT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 8 << 20
