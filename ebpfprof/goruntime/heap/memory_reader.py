"""All that the memory of a target consists of at one moment, without a probe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.heap.heap_types import HeapTypes
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.goruntime.spans import all_spans
from ebpfprof.profile.memory import LargeObject, MemoryParts, MemoryStatistics, TypeBytes
from symbolizer.codeanalysis.memory_globals import memory_globals

if TYPE_CHECKING:
    from ebpfprof.goruntime.spans import Spans
    from ebpfprof.process.process import Target
    from symbolizer import GoBinary

_MAX_LARGE: Final = 10


def read_memory(target: Target, binary: GoBinary, bias: int) -> MemoryParts:
    """What the memory of a process consists of; `bias` is runtime minus linked address.

    Raises TargetGone, PermissionDenied, UnreadableMemory, or GoTableError (its code is unknown).
    """
    layout = binary.layout
    variables = memory_globals(binary)
    memory = target.memory
    statistics = MemoryStatisticsReader(memory, binary, variables, bias).read()
    spans = all_spans(memory, layout, variables.heap + bias)
    types = HeapTypes(memory, binary, bias)
    large = _large(spans, types)
    if not layout.has("mspan", "largeType"):
        return MemoryParts(_with_spans(statistics, spans), large, None, 0)
    typed = types.of(spans)
    rows = [TypeBytes(name, typed.objects[name], used) for name, used in typed.used.most_common()]
    return MemoryParts(
        _with_spans(statistics, spans), large, tuple(rows), typed.used.total(), typed.share
    )


def read_statistics(target: Target, binary: GoBinary, bias: int) -> MemoryStatistics:
    """The statistics alone, which takes less than a millisecond. Raises as read_memory()."""
    memory = target.memory
    return MemoryStatisticsReader(memory, binary, memory_globals(binary), bias).read()


def _large(spans: Spans, types: HeapTypes) -> tuple[LargeObject, ...]:
    """The largest objects with spans of their own."""
    rows = spans.rows[spans.size_classes == 0]
    rows = rows[np.argsort(rows["slot"].astype(np.int64))[::-1][:_MAX_LARGE]]
    kinds = rows["type"].tolist() if "type" in (rows.dtype.names or ()) else [0] * len(rows)
    return tuple(
        LargeObject(size, types.name(kind) if kind else "")
        for size, kind in zip(rows["slot"].tolist(), kinds, strict=True)
    )


def _with_spans(statistics: MemoryStatistics, spans: Spans) -> MemoryStatistics:
    """The statistics, with what the spans of each size class take."""
    count = len(statistics.classes)
    classes, sizes = np.minimum(spans.size_classes, count - 1), spans.sizes
    numbers = np.bincount(classes, minlength=count)
    held = np.bincount(classes, sizes, count).astype(np.int64)
    plain = np.bincount(classes, sizes * ~spans.has_pointers, count).astype(np.int64)
    return replace(
        statistics,
        classes=tuple(
            replace(size_class, spans=spans_of, held=held_by, pointerless=without)
            for size_class, spans_of, held_by, without in zip(
                statistics.classes, numbers.tolist(), held.tolist(), plain.tolist(), strict=True
            )
        ),
    )
