"""Ways in through the buckets of a target's own memory profile."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profilers.heap import buckets
from ebpfprof.profilers.heap.heap_stacks import HeapStacks
from ebpfprof.server import heap_text
from symbolizer import GoBinary, SymbolizerError
from symbolizer.codeanalysis.heap_globals import HeapGlobals, heap_globals
from symbolizer.codeanalysis.operands import is_variable, operands
from tests.fuzz.driver import Parser
from tests.fuzz.elfs import head_bytes, open_elf
from tests.fuzz.minigo import mini, real
from tests.fuzz.seeds import saved_seeds
from tests.fuzz.ways import memory
from tests.fuzz.ways.made_up import made_up_memory

_HEAP: Final = 0xC000_0000_00
_WORDS: Final = 5 * 8  # the variables, before the heap
_FOUND: Final = HeapGlobals(buckets=8, rate=16, cycle=24, cycle_shift=1, active_lock=32, sweep=40)
_HEADER: Final = 48
_RECORD: Final = 128


def _bucket(following: int, size: int, stack: Sequence[int], counts: Sequence[int]) -> bytes:
    header = struct.pack("<6Q", 0, following, 1, 0, size, len(stack))
    return header + struct.pack(f"<{len(stack)}Q", *stack) + struct.pack("<16Q", *counts)


@cache
def bucket_seeds() -> Sequence[bytes]:
    go = memory._go()
    pcs = [each.entry + go.load_bias + 9 for each in list(go.binary.functions())[::300]][:24]
    counts = [5, 2, 240, 96, 1, 0, 48, 0, 2, 1, 96, 48, 0, 0, 0, 0]
    seeds = []
    for head, stacks in ((_HEAP, (pcs[:3], pcs[3:9], pcs)), (0, ())):
        body, at = b"", _HEAP
        for number, stack in enumerate(stacks):
            length = _HEADER + 8 * len(stack) + _RECORD
            following = at + length if number + 1 < len(stacks) else 0
            body += _bucket(following, 16 << number, stack, counts)
            at += length
        variables = struct.pack("<5Q", head, 512 << 10, 7 << 1 | 1, 0, 1 << 31)
        seeds.append(variables + body)
    return seeds


def ask_buckets(data: bytes) -> None:
    go = memory._go()
    data = data.ljust(_WORDS, b"\0")
    stub = made_up_memory([(8, data[:_WORDS]), (_HEAP, data[_WORDS:])])
    reader = HeapBuckets(stub, go.binary.layout, _FOUND, 0)
    found = reader.read()
    assert len(found.stacks) == len(found.sizes) == len(found.allocs) == len(found.frees)
    for fresh in (False, True):
        for sample in buckets.samples(
            found, HeapStacks(go.binary, go.load_bias, go.mappings), fresh=fresh
        ):
            assert all(-(1 << 63) < value < 1 << 63 for value in sample.values)
    assert heap_text.text(found, go.binary, go.load_bias).isprintable() is False
    assert np.all(found.allocs >= 0)


_NAMES: Final = {
    *("runtime.mProf_FlushLocked", "runtime.mProf_Flush", "runtime.mProf_Free"),
    *("runtime.allocmcache", "runtime.sweepone"),
}


@saved_seeds
def code_seeds() -> Sequence[bytes]:
    return [mini(real("heap", minor), _NAMES) for minor in ("1.19", "1.27")]


def ask_code(data: bytes) -> None:
    binary = GoBinary.open(open_elf(data))
    for function in list(binary.functions())[:32]:
        assert len(operands(binary.elf, function)) < 1 << 14
    found = heap_globals(binary)
    assert is_variable(binary.elf, found.buckets, 8)


HEAP_BUCKETS: Final = (
    Parser(
        "heap-buckets",
        (
            "ebpfprof.goruntime.heap.heap_buckets",
            "ebpfprof.goruntime.heap.bucket_list",
            "ebpfprof.profilers.heap.buckets",
            "ebpfprof.profilers.heap.heap_stacks",
            "ebpfprof.server.heap_text",
        ),
        ask_buckets,
        bucket_seeds,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser(
        "heap-globals",
        ("symbolizer.codeanalysis.heap_globals", "symbolizer.codeanalysis.operands"),
        ask_code,
        code_seeds,
        share=20,
        frozen=head_bytes,
    ),
)
