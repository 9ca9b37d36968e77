"""Ways in through references: the spans, objects, variables and specials of a target; its types."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Final
from unittest import mock

import numpy as np

from ebpfprof.export import references as exported
from ebpfprof.export.tables import references as table
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.references import graph, slots
from ebpfprof.goruntime.references.allocation_sites import sampled_at
from ebpfprof.goruntime.references.object_types import Form, ObjectTypes, Shapes
from ebpfprof.goruntime.references.reader import ReferenceReader
from ebpfprof.goruntime.references.walk import WalkLimits
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.references import References
from symbolizer import SymbolizerError
from symbolizer.codeanalysis.globals import allgs_address, allp_address
from symbolizer.codeanalysis.heap_globals import heap_globals
from symbolizer.codeanalysis.memory_globals import memory_globals
from symbolizer.go.type_descriptors import TypeDescriptors
from symbolizer.locks.variable_types import VariableTypes
from tests.fuzz.driver import Parser
from tests.fuzz.ways import memory
from tests.fuzz.ways.heap import type_seeds
from tests.fuzz.ways.made_up import made_up_process

_HEAP: Final = 0xC000_0000_00
_LIST: Final = 0x7000_0000_0000
_SPANS: Final = 0x7000_0001_0000
_SPECIALS: Final = 0x7000_0002_0000
_DATA: Final = 0x7000_0003_0000
_SPAN_BYTES: Final = 256
_COUNT: Final = 3
_PAGE: Final = 8192
_DATA_BYTES: Final = 128
_HEAD: Final = 8 * _COUNT + _SPAN_BYTES * _COUNT + 64 + _DATA_BYTES
_DATA_AT: Final = 208  # of moduledata: data, edata, bss, ebss


@cache
def graph_seeds() -> Sequence[bytes]:
    """A list of small objects, two with a header, a large one; variables; two specials."""
    layout = memory._go().binary.layout
    data = struct.pack(f"<{_COUNT}Q", *(_SPANS + _SPAN_BYTES * index for index in range(_COUNT)))
    for index, (slot, size_class) in enumerate(
        ((64, layout.size_classes.index(64)), (2048, layout.size_classes.index(2048)), (_PAGE, 0))
    ):
        span = bytearray(_SPAN_BYTES)
        for name, code, value in (
            *(("startAddr", "Q", _HEAP + _PAGE * index), ("npages", "Q", 1)),
            *(("elemsize", "Q", slot), ("spanclass", "B", 2 * size_class), ("state", "B", 1)),
            *(("freeindex", "H", 100), ("allocBits", "Q", _HEAP), ("specials", "Q", _SPECIALS)),
        ):
            struct.pack_into(f"<{code}", span, layout.offset("mspan", name), value)
        data += span
    kinds = layout.special_kinds
    special = bytearray(64)
    struct.pack_into("<QQ", special, 0, _SPECIALS + 32, 128)
    special[layout.offset("special", "kind")] = kinds["Finalizer"]
    struct.pack_into("<Q", special, layout.size("special"), _HEAP + 64)
    struct.pack_into("<Q", special, 32 + layout.offset("special", "offset"), 64)
    special[32 + layout.offset("special", "kind")] = kinds["Cleanup"]
    data += bytes(special)
    variables = [_HEAP, _HEAP + _PAGE + 8, _HEAP + 2 * _PAGE, _HEAP + 64 * 5 + 8]
    data += struct.pack("<4Q", *variables).ljust(_DATA_BYTES, b"\0")
    small = b"".join(
        struct.pack("<8Q", _HEAP + 64 * (number + 1), *range(7)) for number in range(64)
    )
    header = memory._go().binary.types[0] + 64
    middle = struct.pack("<4Q", header, _HEAP + 64 * 7, _HEAP + _PAGE + 2048, 0).ljust(2048, b"\0")
    middle += struct.pack("<2Q", header, _HEAP + 2 * _PAGE)
    return (data + small + middle, data + small[:512])


def ask_graph(data: bytes) -> None:
    base = memory._go()
    binary, bias, layout = base.binary, base.load_bias, base.binary.layout
    heap = memory_globals(binary).heap + bias
    allp = allp_address(binary)
    assert allp is not None
    at = 8 * _COUNT
    spans, at = data[at : at + _SPAN_BYTES * _COUNT], at + _SPAN_BYTES * _COUNT
    specials, variables = data[at : at + 64], data[at + 64 : _HEAD]
    objects = data[_HEAD:]
    ends = struct.pack("<4Q", _DATA, _DATA + len(variables), _DATA, _DATA)
    go = made_up_process(
        base,
        [
            (heap + layout.offset("mheap", "allspans"), struct.pack("<3Q", _LIST, _COUNT, _COUNT)),
            (_LIST, data[: 8 * _COUNT].ljust(8 * _COUNT, b"\0")),
            (_SPANS, spans.ljust(_SPAN_BYTES * _COUNT, b"\0")),
            (_SPECIALS, specials),
            (_DATA, variables),
            (binary.module_start + bias + _DATA_AT, ends),
            (binary.types[0] + bias, bytes(binary.types[1] - binary.types[0])),
            (allgs_address(binary) + bias, bytes(24)),
            (allp + bias, bytes(24)),
            (heap_globals(binary).buckets + bias, bytes(8)),
            (_HEAP, objects.ljust(2 * _PAGE, b"\0")[: 2 * _PAGE]),
        ],
    )
    with (
        mock.patch.object(slots, "MAX_ARENAS", 4),
        mock.patch.object(graph, "MAX_SLOTS", 1 << 16),
        suppress(graph.HeapTooLarge),  # a typed error is an answer, too
    ):
        reader = ReferenceReader(go)
        for limits in (WalkLimits(widest=4, thin=0), WalkLimits()):
            ask_references(reader.references(limits))
        ask_why(reader, go, int.from_bytes(data[_HEAD - 8 : _HEAD], "little"))


def ask_references(references: References) -> None:
    assert references.used == sum(root.paths.total for root in references.roots)
    assert references.objects == sum(root.paths.total_objects for root in references.roots)
    text = table.render(references, "process 1", width=80, color=False) if references.used else ""
    assert all(line.isprintable() for line in text.splitlines())
    assert exported.encode(references, 1, "x", "go1.27", 0.0).endswith("}\n")


def ask_why(reader: ReferenceReader, go: GoTarget, address: int) -> None:
    assert set(sampled_at(go, reader.scan.slots, "main.main").tolist()) <= set(range(1 << 16))
    asked = reader.at(address)
    asked = asked if len(asked) else reader.at(_HEAP + 64)
    if len(asked):
        reasons = reader.reasons("x", asked)
        assert reasons.freed >= reasons.used >= 0
        assert table.render_reasons(reasons, width=80).isascii()


def ask_types(data: bytes) -> None:
    base = memory._go()
    start = 1 << 20
    types = ObjectTypes(
        Shapes(TypeDescriptors(data, start), VariableTypes(base.binary.elf), start),
        base.binary.layout,
    )
    for offset in range(0, len(data), 16):
        number = types.variable(start + offset)
        for form in (Form.VALUES, Form.MAP, Form.MAP_GROUPS, Form.CHANNEL, Form.AROUND):
            other = types.number(form, start + offset)
            for place in (0, 8, 16, 24, 40):
                step = types.step(other, place)
                assert 0 <= step.type < len(types)
        for place in range(0, 64, 8):
            step = types.step(number, place)
            assert 0 <= types.fitting(step.type, 64, is_first=place > 8) < len(types)
        types.of_header(start + offset, 1024)
        kind, _ = types.of_dynamic(start + offset)
        assert types.period(kind) >= 0
        assert isinstance(types.name(kind), str)
    assert len(np.unique([types.period(number) for number in range(len(types))])) > 0


REFERENCES: Final = (
    Parser(
        "references",
        (
            "ebpfprof.goruntime.references.slots",
            "ebpfprof.goruntime.references.graph",
            "ebpfprof.goruntime.references.roots",
            "ebpfprof.goruntime.references.search",
            "ebpfprof.goruntime.references.specials",
            "ebpfprof.goruntime.references.cuts",
            "ebpfprof.goruntime.references.reader",
            "ebpfprof.goruntime.references.scan",
            "ebpfprof.goruntime.references.heap",
            "ebpfprof.goruntime.references.heap_paths",
            "ebpfprof.goruntime.references.walk",
            "ebpfprof.goruntime.references.parts",
            "ebpfprof.goruntime.references.marks",
            "ebpfprof.goruntime.references.key_numbers",
            "ebpfprof.goruntime.references.pointed_types",
            "ebpfprof.goruntime.references.path_tree",
            "ebpfprof.goruntime.references.allocation_sites",
            "ebpfprof.goruntime.references.leaks",
        ),
        ask_graph,
        graph_seeds,
        share=60,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser(
        "object-types",
        ("ebpfprof.goruntime.references.object_types",),
        ask_types,
        type_seeds,
        share=60,
    ),
)
