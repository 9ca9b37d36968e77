"""What the kernel's helpers take each time that a BPF program calls them: what ours are made of."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from ebpfprof.kernel import syscalls
from tests.bench.bpfstats import counting_runs, runs_by_program

CALLS: Final = 64  # in one program
RUNS: Final = 2_000
ROUNDS: Final = 5
BYTES: Final = 2_048

# include/uapi/linux/bpf.h
_LOOKUP, _CLOCK, _READ_USER = 1, 5, 112
_MAP_FD, _MAP_VALUE = 1, 2
_CALL, _MOVE, _MOVE_IMM, _ADD_IMM, _STORE_IMM, _LOAD_64 = 0x85, 0xBF, 0xB7, 0x07, 0x7A, 0x18
_R0, _R1, _R2, _R3, _FRAME = 0, 1, 2, 3, 10


def parts_ns() -> dict[str, float]:
    """Nanoseconds each, by what it is; without what measuring takes."""
    with ExitStack() as held:
        read = (ctypes.c_char * BYTES)()
        hash_fd = syscalls.create_map(syscalls.MAP_TYPE_HASH, 8, 8, 1)
        held.callback(os.close, hash_fd)
        array_fd = syscalls.create_map(syscalls.MAP_TYPE_ARRAY, 4, BYTES, 1)
        held.callback(os.close, array_fd)
        call = {
            "each reading of the clock": _insn(_CALL, imm=_CLOCK),
            "each read of 8 bytes of the target": _own_stack(_R1)
            + _read(8, ctypes.addressof(read)),
            f"each read of {BYTES:,} bytes of it": _load_64(_R1, array_fd, _MAP_VALUE)
            + _read(BYTES, ctypes.addressof(read)),
            "each lookup in a hash table": _load_64(_R1, hash_fd, _MAP_FD)
            + _own_stack(_R2)
            + _insn(_CALL, imm=_LOOKUP),
        }
        nothing_ns = _fastest_ns(b"")
        return {
            name: (_fastest_ns(code * CALLS) - nothing_ns) / CALLS for name, code in call.items()
        }


def _fastest_ns(code: bytes) -> float:
    """Of some rounds of many runs, a run in the quickest, as the kernel measures it."""
    with _loaded(code) as program, counting_runs():
        found = []
        for _ in range(ROUNDS):
            before = runs_by_program(os.getpid())["parts"]
            for _ in range(RUNS):
                syscalls.run_program(program, [0])
            done = runs_by_program(os.getpid())["parts"] - before
            found.append(done.time_ns / done.count)
        return min(found)


@contextmanager
def _loaded(code: bytes) -> Iterator[int]:
    begin = _insn(_STORE_IMM, _FRAME, offset=-8)
    fd = syscalls.load_program("raw_tracepoint", begin + code + syscalls.NOOP_CODE, name="parts")
    try:
        yield fd
    finally:
        os.close(fd)


def _own_stack(register: int) -> bytes:
    """The register points at a word that is there."""
    return _insn(_MOVE, register, _FRAME) + _insn(_ADD_IMM, register, imm=-8)


def _read(size_bytes: int, address: int) -> bytes:
    """Read so much of our own memory to where R1 points."""
    size = _insn(_MOVE_IMM, _R2, imm=size_bytes)
    low, high = address & 0xFFFFFFFF, address >> 32
    source = struct.pack("<BBhIBBhI", _LOAD_64, _R3, 0, low, 0, 0, 0, high)
    return size + source + _insn(_CALL, imm=_READ_USER)


def _load_64(register: int, fd: int, what: int) -> bytes:
    return _insn(_LOAD_64, register, what, imm=fd) + _insn(0)


def _insn(code: int, to: int = 0, source: int = 0, offset: int = 0, imm: int = 0) -> bytes:
    """struct bpf_insn."""
    return struct.pack("<BBhi", code, source << 4 | to, offset, imm)
