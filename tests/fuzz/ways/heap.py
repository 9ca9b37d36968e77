"""Ways in through locks on the heap: descriptors of types, spans, the code of methods."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

from ebpfprof.goruntime.heap.heap_locks import object_at
from ebpfprof.process.memory import UnreadableMemory
from symbolizer import GoBinary, SymbolizerError
from symbolizer.codeanalysis.globals import arenas_address
from symbolizer.codeanalysis.receiver_locks import ReceiverLocks
from symbolizer.go.type_descriptors import TypeDescriptors
from symbolizer.locks.heap import HeapLockNames, HeapObject
from symbolizer.locks.names import Caller
from tests.fuzz.driver import Parser
from tests.fuzz.elfs import head_bytes, open_elf
from tests.fuzz.minigo import NEWEST, mini, real
from tests.fuzz.seeds import saved_seeds
from tests.fuzz.ways import memory
from tests.fuzz.ways.made_up import made_up_memory

_START: Final = 0x4000
_STRUCT, _ARRAY, _UINT32 = 25, 17, 10


class _Types:
    """Writes descriptors one behind the other."""

    def __init__(self) -> None:
        self.data = bytearray(8)

    def name(self, text: str, flags: int = 0) -> int:
        at = len(self.data)
        self.data += bytes([flags, len(text)]) + text.encode()
        self.data += bytes(-len(self.data) % 8)
        return at

    def add(self, kind: int, size: int, name: str, rest: bytes, package: int, flags: int) -> int:
        text = self.name(f"*{name}")
        at = len(self.data)
        self.data += struct.pack(
            "<QQIBBBBQQiI", size, size // 2 & ~7, 7, flags, 8, 8, kind, 0, 0, text, 0
        )
        self.data += rest + struct.pack("<iHHII", package, 0, 0, 0, 0)
        return at + _START

    def number(self) -> int:
        return self.add(_UINT32, 4, "uint32", b"", 0, 2)

    def array(self, element: int, size: int, count: int) -> int:
        return self.add(_ARRAY, size * count, "[]", struct.pack("<QQQ", element, 0, count), 0, 2)

    def struct(self, name: str, package: str, size: int, *fields: tuple[str, int, int]) -> int:
        path = self.name(package)
        names = [self.name(each[0], each[0][0].isupper()) + _START for each in fields]
        at = len(self.data) + _START
        for where, (_, kind, offset) in zip(names, fields, strict=True):
            self.data += struct.pack("<QQQ", where, kind, offset)
        rest = struct.pack("<QQQQ", 0, at, len(fields), len(fields))
        return self.add(_STRUCT, size, name, rest, path, 7)


@cache
def type_seeds() -> Sequence[bytes]:
    made = _Types()
    word = made.number()
    mutex = made.struct("sync.Mutex", "sync", 8, ("state", word, 0), ("sema", word, 4))
    rw = made.struct("sync.RWMutex", "sync", 24, ("w", mutex, 0), ("writerSem", word, 8))
    shard = made.struct("main.Shard[int]", "main", 32, ("rw", rw, 0), ("n", word, 24))
    made.struct(
        *("main.Cache", "main", 152),
        *(("n", word, 0), ("mu", mutex, 16), ("shards", made.array(shard, 32, 4), 24)),
    )
    return (bytes(made.data),)


def ask_types(data: bytes) -> None:
    names = HeapLockNames(TypeDescriptors(data, _START))
    callers = [Caller("main.(*Cache).Get", 1)]
    for slot in (16, 32, 160, 320, 40960):
        for offset in range(0, min(slot, 192), 4):
            for has_pointers in (False, True):
                for kind in ("sync.Mutex", "sync.RWMutex"):
                    found = names.name(HeapObject(slot, 0, offset, has_pointers), callers, kind)
                    assert found is None or 0 < len(found) < 1 << 18
    for at in range(0, min(len(data), 2048), 8):
        names.name(HeapObject(1024, 8, 16, True, _START + at), (), "sync.Mutex")
    for offset in range(-8, 160, 4):
        names.of_receiver("main.Cache", offset, "sync.RWMutex")


# A span: where the table of arenas is, then a word of it, one of the arena, a span, a header.

_LOCK: Final = 0xC000_1240_50
_TABLE, _ARENA, _SPAN = 0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000
_SPAN_BYTES: Final = 192


@cache
def span_seeds() -> Sequence[bytes]:
    layout = memory._go().binary.layout
    seeds = []
    for slot, pages, span_class in ((96, 1, 20), (1024, 1, 60), (40960, 5, 0), (16, 1, 5)):
        span = bytearray(_SPAN_BYTES)
        start = _LOCK & ~0x1FFF
        for name, code, value in (
            *(("startAddr", "Q", start), ("npages", "Q", pages), ("elemsize", "Q", slot)),
            *(("spanclass", "B", span_class), ("state", "B", 1), ("largeType", "Q", 0x4000)),
        ):
            struct.pack_into(f"<{code}", span, layout.offset("mspan", name), value)
        seeds.append(struct.pack("<3Q", _TABLE, _ARENA, _SPAN) + span + struct.pack("<Q", 0x4000))
    return seeds


def ask_span(data: bytes) -> None:
    go = memory._go()
    page = (_LOCK >> 13) % 8192
    arena = _ARENA + go.binary.layout.offset("heapArena", "spans") + 8 * page
    parts = [
        (arenas_address(go.binary) + go.load_bias, data[:8]),
        (_TABLE + 8 * ((_LOCK + (1 << 47)) >> 26), data[8:16]),
        (arena, data[16:24]),
        (_SPAN, data[24 : 24 + _SPAN_BYTES]),
        *(((_LOCK & ~0x1FFF) + at, data[-8:]) for at in range(0, 8192, 8)),
    ]
    stub = made_up_memory(parts)
    found = object_at(go, stub, _LOCK)
    if found:
        assert 0 <= found.offset < found.slot_bytes


_METHODS: Final = {
    *("main.(*cache).get", "main.(*cache).deferred", "main.(*chain).last", "main.(*page).touch"),
    *("sync.(*Mutex).lockSlow", "sync.(*Mutex).unlockSlow", "internal/sync.(*Mutex).lockSlow"),
    *("internal/sync.(*Mutex).unlockSlow", "sync.(*RWMutex).rUnlockSlow", "sync.(*RWMutex).Lock"),
    *("sync.runtime_SemacquireRWMutexR", "sync.runtime_SemacquireMutex", "runtime.gopark"),
}


@saved_seeds
def method_seeds() -> Sequence[bytes]:
    found = []
    for minor in ("1.19", NEWEST):
        binary = real("heaplocks", minor)
        have = {function.name for function in binary.functions()}
        found.append(mini(binary, have & _METHODS))
    return found


def ask_methods(data: bytes) -> None:
    binary = GoBinary.open(open_elf(data))
    receivers = ReceiverLocks(binary)
    for index, function in enumerate(binary.functions()):
        for kind in ("sync.Mutex", "sync.RWMutex"):
            assert len(receivers.offsets(function.name, function.entry, kind)) < 1 << 12
        if index == 64:
            break


HEAP: Final = (
    Parser(
        "type-descriptors",
        ("symbolizer.go.type_descriptors", "symbolizer.locks.heap"),
        ask_types,
        type_seeds,
        allowed=(),
    ),
    Parser(
        "heap-spans",
        ("ebpfprof.goruntime.heap.heap_locks",),
        ask_span,
        span_seeds,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser(
        "receiver-locks",
        ("symbolizer.codeanalysis.receiver_locks",),
        ask_methods,
        method_seeds,
        share=40,
        frozen=head_bytes,
    ),
)
