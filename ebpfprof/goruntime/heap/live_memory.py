"""What is in use by size and by type, of any Go program: as of its latest garbage collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ebpfprof.goruntime.heap.heap_types import HeapTypes
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.goruntime.mark_bits import marked
from ebpfprof.goruntime.spans import all_spans

if TYPE_CHECKING:
    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary
    from symbolizer.codeanalysis.memory_globals import MemoryGlobals


class LiveMemory(NamedTuple):
    """Bytes by type, and by size of objects (0: large ones), after `collections`."""

    collections: int
    types: dict[str, int]
    sizes: dict[int, int]

    @property
    def in_use(self) -> int:
        """The bytes of all objects."""
        return sum(self.sizes.values())


class LiveMemoryReader:
    """Reads one target, any number of times.

    Survivors of a collection are kept apart from what was allocated since, so a sample is the same
    whenever it comes between two collections. Spans that are not swept yet show the state of the
    one before.
    """

    def __init__(
        self, memory: Memory, binary: GoBinary, memory_globals: MemoryGlobals, load_bias: int
    ) -> None:
        """Raises TargetGone, UnreadableMemory or GoTableError."""
        self._memory, self._layout = memory, binary.layout
        self._heap = memory_globals.heap + load_bias
        self._statistics = MemoryStatisticsReader(memory, binary, memory_globals, load_bias)
        has_types = binary.layout.has("mspan", "largeType")
        self._types = HeapTypes(memory, binary, load_bias) if has_types else None

    def collections(self) -> int:
        """How many collections there were. Raises TargetGone or UnreadableMemory."""
        return self._statistics.read().collector.cycles

    def read(self) -> LiveMemory:
        """What survived the latest collection. Raises TargetGone or UnreadableMemory."""
        collections = self.collections()
        spans = all_spans(self._memory, self._layout, self._heap)
        used = marked(self._memory, spans.rows) * spans.rows["slot"].astype(np.int64)
        sizes: dict[int, int] = {}
        for number, size in enumerate(self._layout.size_classes):
            of_class = int(used[spans.size_classes == number].sum())
            if of_class:
                sizes[size] = of_class
        types = self._types.of(spans, only_marked=True).used if self._types else {}
        return LiveMemory(collections, dict(types), sizes)
