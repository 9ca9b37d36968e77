"""Go's own block profiler, switched on and read from outside, in a program that has no pprof.

For tests only: it writes to the memory of the process. The runtime looks at
runtime.blockprofilerate whenever a goroutine blocks, and collects in the list
runtime.bbuckets, whether or not the program can write a profile (Go 1.19 to 1.27,
runtime/mprof.go).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import capstone
from capstone import x86
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from symbolizer import ElfFile, GoBinary

# struct bucket and the blockRecord behind its stack (runtime/mprof.go, the same in all versions).
_ALLNEXT: Final = 8
_TYPE: Final = 16
_NSTK: Final = 40
_STACK: Final = 48
_BLOCK_PROFILE: Final = 2
_MAX_DEPTH: Final = 1024
_MAX_BUCKETS: Final = 1_000_000
# Stands in front of stacks that were saved with inlined calls as frames of their own.
_LOGICAL_STACK: Final = (1 << 64) - 1


class OracleError(Exception):
    """The runtime's profiler was not found in the program, or its memory makes no sense."""


@dataclass(frozen=True)
class Bucket:
    """One stack of the runtime's block profile.

    `stack` holds return addresses as the process has them, innermost first, as Go saved them:
    up to 1.22 with one entry per logical frame, from 1.23 on (mostly) per physical frame.
    """

    stack: tuple[int, ...]
    count: float
    cycles: int

    @property
    def delay_ns(self) -> int:
        """What Go's profile shows for this bucket."""
        return int(self.cycles / (cycles_per_second() / 1e9))


@dataclass(frozen=True)
class Globals:
    """Addresses as linked."""

    block_rate: int
    block_buckets: int


def set_block_rate(pid: int, binary: Path, rate: int) -> None:
    """Set runtime.blockprofilerate of a process to `rate` cycles: 1 takes every event, 0 none.

    `binary` is the file the process runs. Raises OracleError, or OSError without privileges.
    """
    address = globals_of(binary).block_rate + load_bias(pid, binary)
    with _memory(pid) as memory:
        os.pwrite(memory, struct.pack("<q", rate), address)


def track_every_stop(pid: int, binary: Path) -> None:
    """Have the scheduler of a process track every stop of its goroutines, not one in eight.

    As the runtime's own tests do (runtime.casgstatusAlwaysTrack, Go 1.20 and newer). `binary` has
    symbols. Raises OracleError, or OSError without privileges.
    """
    with binary.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        found = table.get_symbol_by_name("runtime.casgstatusAlwaysTrack")
    if not found:
        raise OracleError(f"{binary} has no runtime.casgstatusAlwaysTrack.")
    with _memory(pid) as memory:
        os.pwrite(memory, b"\x01", int(found[0]["st_value"]) + load_bias(pid, binary))


def read_block_buckets(pid: int, binary: Path) -> list[Bucket]:
    """Everything that the runtime of a process has recorded since its start.

    Raises OracleError if the list makes no sense, or OSError without privileges.
    """
    head = globals_of(binary).block_buckets + load_bias(pid, binary)
    found: list[Bucket] = []
    with _memory(pid) as memory:
        (address,) = struct.unpack("<Q", _read(memory, head, 8))
        while address:
            if len(found) >= _MAX_BUCKETS:
                raise OracleError(f"The bucket list of process {pid} has no end.")
            header = _read(memory, address, _STACK)
            (kind,) = struct.unpack_from("<Q", header, _TYPE)
            (depth,) = struct.unpack_from("<Q", header, _NSTK)
            if kind != _BLOCK_PROFILE or depth > _MAX_DEPTH:
                raise OracleError(f"There is no block bucket at {address:#x} in process {pid}.")
            words = _read(memory, address + _STACK, 8 * depth + 16)
            stack = struct.unpack_from(f"<{depth}Q", words)
            count, cycles = struct.unpack_from("<dq", words, 8 * depth)
            found.append(Bucket(tuple(pc for pc in stack if pc != _LOGICAL_STACK), count, cycles))
            (address,) = struct.unpack_from("<Q", header, _ALLNEXT)
    return found


def load_bias(pid: int, binary: Path) -> int:
    """What to add to an address as linked to have it as process `pid` has it."""
    with binary.open("rb") as file:
        first = next(s for s in ELFFile(file).iter_segments("PT_LOAD") if s["p_offset"] == 0)
    inode = binary.stat().st_ino
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, _, offset, _, number, *_ = line.split()
        if int(number) == inode and int(offset, 16) == 0:
            return int(span.split("-")[0], 16) - int(first["p_vaddr"])
    raise OracleError(f"Process {pid} does not run {binary}.")


@cache
def cycles_per_second() -> float:
    """Frequency of the time-stamp counter, in which the runtime measures, in Hz.

    Go computes it from the same two clocks (runtime/runtime.go, ticksPerSecond).
    """
    with _time_stamp_counter() as counter:

        def both() -> tuple[int, int]:
            # The reading least disturbed: the one between the two closest readings of the clock.
            readings = []
            for _ in range(100):
                before = time.monotonic_ns()
                cycles = counter()
                after = time.monotonic_ns()
                readings.append((after - before, (before + after) // 2, cycles))
            _, at_ns, cycles = min(readings)
            return at_ns, cycles

        start_ns, start = both()
        time.sleep(0.5)
        end_ns, end = both()
    return (end - start) * 1e9 / (end_ns - start_ns)


@contextmanager
def _time_stamp_counter() -> Iterator[Callable[[], int]]:
    # lfence; rdtsc; shl rdx, 32; or rax, rdx; ret
    code = bytes.fromhex("0faee8 0f31 48c1e220 4809d0 c3")
    protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    with mmap.mmap(-1, mmap.PAGESIZE, prot=protection) as page:
        page.write(code)
        anchor = ctypes.c_char.from_buffer(page)
        yield ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(anchor))
        del anchor


@contextmanager
def _memory(pid: int) -> Iterator[int]:
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(memory: int, address: int, size: int) -> bytes:
    data = os.pread(memory, size, address)
    if len(data) != size:
        raise OracleError(f"{size} bytes at {address:#x} could not be read.")
    return data


@cache
def globals_of(binary: Path) -> Globals:
    with binary.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        if isinstance(table, SymbolTableSection):
            rate = table.get_symbol_by_name("runtime.blockprofilerate")
            buckets = table.get_symbol_by_name("runtime.bbuckets")
            if rate and buckets:
                return Globals(int(rate[0]["st_value"]), int(buckets[0]["st_value"]))
    return globals_from_code(binary)


def globals_from_code(binary: Path) -> Globals:
    """The two variables of a program without symbols, from the code that uses them.

    blockevent reads but one variable: blockprofilerate. stkbucket takes the address of
    profInsertLock first of all, and those of mbuckets, xbuckets and bbuckets, in this order,
    between two more uses of that lock (builds of Go 1.19 to 1.27). Raises OracleError if the
    code looks otherwise.
    """
    rates = _rip_relative(binary, "runtime.blockevent", ("mov", "cmp"))
    addresses = _rip_relative(binary, "runtime.stkbucket", ("lea",))
    windows = [addresses[i : i + 5] for i in range(len(addresses) - 4)]
    between = [w for w in windows if [a == addresses[0] for a in w] == [1, 0, 0, 0, 1]]
    if len(rates) != 1 or not between:
        raise OracleError(f"The profiler's variables were not found in the code of {binary}.")
    return Globals(rates[0], between[-1][3])


def _rip_relative(binary: Path, name: str, mnemonics: tuple[str, ...]) -> list[int]:
    """Addresses that a function's instructions of these kinds refer to, in order."""
    with ElfFile.open(binary) as elf:
        (function,) = GoBinary.open(elf).functions_named(name)
        code = elf.read(function.entry, function.end - function.entry)
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    return [
        instruction.address + instruction.size + operand.mem.disp
        for instruction in decoder.disasm(code, function.entry)
        if instruction.mnemonic in mnemonics
        for operand in instruction.operands
        if operand.type == x86.X86_OP_MEM and operand.mem.base == x86.X86_REG_RIP
    ]
