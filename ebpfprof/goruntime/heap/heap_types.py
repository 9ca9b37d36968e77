"""The types of objects on a target's heap, as far as the heap tells.

From Go 1.22 on, an object with pointers of more than 512 bytes has its type in the word before it,
and a large one in its span (runtime/mbitmap.go, heapBitsInSpan; runtime/mheap.go, mspan.largeType).
Smaller ones, those without pointers, and those of older versions have none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.heap.program_types import program_types
from ebpfprof.goruntime.mark_bits import marked, marks, slots_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.spans import Spans
    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary

_LARGEST_WITHOUT: Final = 512
_MAX_OBJECTS: Final = 1 << 18


class TypedObjects(NamedTuple):
    """Objects and bytes by type, and the part of the spans with types that was read (0 to 1)."""

    objects: Counter[str]
    used: Counter[str]
    share: float


class HeapTypes:
    """The types of one program's objects."""

    def __init__(self, memory: Memory, binary: GoBinary, load_bias: int) -> None:
        """Reads the program's types. Raises TargetGone or UnreadableMemory."""
        self._memory = memory
        self._types = program_types(memory, binary, load_bias)
        self._names: dict[int, str] = {}

    def name(self, address: int) -> str:
        """The name of the type at a runtime address, "" if there is none."""
        if address not in self._names:
            self._names[address] = self._types.text(address)
        return self._names[address]

    def of(self, spans: Spans, *, only_marked: bool = False) -> TypedObjects:
        """The objects in spans that record types, large ones too. Raises TargetGone.

        With `only_marked`, those that survived the last collection: see mark_bits.
        """
        large = spans.size_classes == 0
        rows = spans.rows[spans.has_pointers & ~large & (spans.rows["slot"] > _LARGEST_WITHOUT)]
        slots = slots_of(rows)
        share = min(1.0, _MAX_OBJECTS / max(1, int(slots.sum())))
        if share < 1:
            kept = np.linspace(0, len(rows) - 1, max(1, int(share * len(rows)))).astype(np.int64)
            rows, slots = rows[kept], slots[kept]
        objects, used = Counter[str](), Counter[str]()
        for address, size, count in self._headers(rows, slots, only_marked=only_marked):
            if name := self.name(address):
                objects[name] += round(count / share)
                used[name] += round(count * size / share)
        big = spans.rows[large & spans.has_pointers]
        if only_marked:
            big = big[marked(self._memory, big) > 0]
        for address, size in zip(big["type"].tolist(), big["slot"].tolist(), strict=True):
            if address and (name := self.name(address)):
                objects[name] += 1
                used[name] += size
        return TypedObjects(objects, used, share)

    def _headers(
        self, rows: npt.NDArray[Any], slots: npt.NDArray[np.int64], *, only_marked: bool
    ) -> list[tuple[int, int, int]]:
        """Of objects that are there: type, size of the slot, and how many have both."""
        is_there = marks(self._memory, rows, slots)
        if not only_marked:
            # What lies before the first free slot is in use, or waits to be swept.
            number = np.arange(is_there.shape[1])
            is_there |= number < np.minimum(rows["free_from"].astype(np.int64), slots)[:, None]
        span, slot = np.nonzero(is_there)
        sizes = rows["slot"][span]
        places = rows["start"][span] + slot.astype(np.uint64) * sizes
        words = self._memory.read_records(places, np.dtype("<u8"))
        pairs = np.stack([words.astype(np.int64), sizes.astype(np.int64)], axis=1)
        distinct, counts = np.unique(pairs, axis=0, return_counts=True)
        return [
            (address, size, count)
            for (address, size), count in zip(distinct.tolist(), counts.tolist(), strict=True)
        ]
