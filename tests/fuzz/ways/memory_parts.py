"""Ways in through the runtime's statistics, spans and types of a target's heap."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from ebpfprof.export import memory_json
from ebpfprof.export.tables import memory as memory_table
from ebpfprof.goruntime.heap.heap_types import HeapTypes
from ebpfprof.goruntime.heap.live_memory import LiveMemoryReader
from ebpfprof.goruntime.heap.memory_reader import _large, _with_spans
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.goruntime.heap.survivors import ALIVE, GONE, UNKNOWN, Survivors
from ebpfprof.goruntime.mark_bits import marked, slots_of
from ebpfprof.goruntime.spans import all_spans
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.memory import MemoryParts, TypeBytes
from symbolizer import GoBinary, SymbolizerError
from symbolizer.codeanalysis.allocation_gates import allocation_gates
from symbolizer.codeanalysis.globals import allp_address, arenas_address
from symbolizer.codeanalysis.memory_globals import memory_globals
from tests.fuzz.driver import Parser
from tests.fuzz.elfs import head_bytes, open_elf
from tests.fuzz.minigo import mini, real
from tests.fuzz.seeds import saved_seeds
from tests.fuzz.ways import memory
from tests.fuzz.ways.made_up import made_up_memory

_HEAP: Final = 0xC000_0000_00
_ARENAS: Final = 0x7000_0000_0000
_PIECE: Final = 4096


@cache
def part_seeds() -> Sequence[bytes]:
    """Statistics, the pacer, the list of spans, one cache; then spans, bits and objects."""
    layout = memory._go().binary.layout
    span = bytearray(layout.size("mspan"))
    for name, code, value in (
        *(("startAddr", "Q", _HEAP), ("npages", "Q", 1), ("elemsize", "Q", 1024)),
        *(("spanclass", "B", 2 * layout.size_classes.index(1024)), ("state", "B", 1)),
        *(("freeindex", "H", 3), ("allocBits", "Q", _HEAP), ("allocCount", "H", 3)),
    ):
        struct.pack_into(f"<{code}", span, layout.offset("mspan", name), value)
    words = [_HEAP, 1, 1, _HEAP + 8, 1, 0, _HEAP + 64, _HEAP + 64, *range(1 << 10, 1 << 13, 8)]
    parts = struct.pack(f"<{len(words)}Q", *words)
    return (parts[:112] + bytes(span) + parts[112:], bytes(_PIECE), b"\xff" * _PIECE)


def ask_parts(data: bytes) -> None:
    go = memory._go()
    binary, bias, layout = go.binary, go.load_bias, go.binary.layout
    found = memory_globals(binary)
    whole = (data or b"\0") * (1 + (1 << 17) // max(1, len(data)))
    allp = allp_address(binary)
    assert allp is not None
    stub = made_up_memory(
        [
            (found.statistics + bias, whole[: layout.size("mstats")]),
            (found.controller + bias, whole[8 : 8 + layout.size("gcControllerState")]),
            (allp + bias, data[:24].ljust(24, b"\0")),
            *(
                (found.heap + bias + layout.offset("mheap", name), data[24:40].ljust(16, b"\0"))
                for name in ("allspans", "sweepgen", "spanalloc.inuse", "cachealloc.inuse")
            ),
            (arenas_address(binary) + bias, struct.pack("<Q", _ARENAS)),
            (_ARENAS + 8 * (1 << 21), (data[:8] * 8).ljust(64, b"\0")),
            (_HEAP, whole[48 : 1 << 14]),
            (
                binary.types[0] + bias,
                whole[: 1 << 12].ljust(binary.types[1] - binary.types[0], b"\0"),
            ),
        ]
    )
    statistics = MemoryStatisticsReader(stub, binary, found, bias).read()
    spans = all_spans(stub, layout, found.heap + bias)
    assert np.all(spans.sizes > 0)
    types = HeapTypes(stub, binary, bias)
    typed = types.of(spans)
    survived = types.of(spans, only_marked=True)
    assert survived.used.total() <= typed.used.total()
    assert np.all(marked(stub, spans.rows) <= slots_of(spans.rows))
    live = LiveMemoryReader(stub, binary, found, bias).read()
    assert live.in_use >= 0
    survivors = Survivors(stub, binary, found.heap + bias, bias)
    objects = np.frombuffer(whole[: 1 << 10], "<u8")
    answers = survivors.ask(objects, np.full(len(objects), 1024, np.uint64), data[0] if data else 0)
    assert set(answers.tolist()) <= {ALIVE, GONE, UNKNOWN}
    rows = tuple(TypeBytes(name, typed.objects[name], typed.used[name]) for name in typed.used)
    parts = MemoryParts(
        _with_spans(statistics, spans), _large(spans, types), rows, typed.used.total(), typed.share
    )
    text = memory_table.render(parts, "process 1", 1e9, show_all=True, width=80, color=False)
    assert all(line.isprintable() for line in text.splitlines())
    assert memory_json.encode(parts, 1, "x", "go1.27", 0.0).endswith("}\n")


_NAMES: Final = {"runtime.(*mcache).refill"}


@saved_seeds
def code_seeds() -> Sequence[bytes]:
    return [mini(real("memory", minor), _NAMES) for minor in ("1.19", "1.27")]


def ask_code(data: bytes) -> None:
    assert memory_globals(GoBinary.open(open_elf(data))).heap > 0


_GATE_NAMES: Final = {"runtime.profilealloc", "runtime.publicationBarrier", "runtime.throw"}


@saved_seeds
def gate_seeds() -> Sequence[bytes]:
    of_versions = (("1.19", "mallocgc"), ("1.24", "mallocgcTiny"), ("1.27", "mallocgcTinySC2"))
    return [mini(real("memory", v), _GATE_NAMES | {f"runtime.{name}"}) for v, name in of_versions]


def ask_gates(data: bytes) -> None:
    for gate in allocation_gates(GoBinary.open(open_elf(data))):
        assert gate.object.register
        assert gate.pc > 0


MEMORY_PARTS: Final = (
    Parser(
        "allocation-gates",
        ("symbolizer.codeanalysis.allocation_gates", "symbolizer.x86.values"),
        ask_gates,
        gate_seeds,
        share=20,
        frozen=head_bytes,
    ),
    Parser(
        "memory-parts",
        (
            "ebpfprof.goruntime.heap.memory_stats",
            "ebpfprof.goruntime.mark_bits",
            "ebpfprof.goruntime.heap.heap_goal",
            "ebpfprof.goruntime.heap.heap_types",
            "ebpfprof.goruntime.heap.live_memory",
            "ebpfprof.goruntime.heap.memory_reader",
            "ebpfprof.goruntime.heap.processor_caches",
            "ebpfprof.goruntime.spans",
            "ebpfprof.goruntime.arenas",
            "ebpfprof.goruntime.heap.survivors",
        ),
        ask_parts,
        part_seeds,
        share=60,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser(
        "memory-globals",
        ("symbolizer.codeanalysis.memory_globals",),
        ask_code,
        code_seeds,
        share=20,
        frozen=head_bytes,
    ),
)
