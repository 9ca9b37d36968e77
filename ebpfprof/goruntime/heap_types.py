"""The types of objects on a target's heap, as far as the heap tells.

From Go 1.22 on, an object with pointers of more than 512 bytes has its type in the word before it,
and a large one in its span (runtime/mbitmap.go, heapBitsInSpan; runtime/mheap.go, mspan.largeType).
Smaller ones, those without pointers, and those of older versions have none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.spans import PAGE_BYTES
from symbolizer.go.type_descriptors import MAX_BYTES, TypeDescriptors

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.spans import Spans
    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary

_LARGEST_WITHOUT: Final = 512
_MAX_OBJECTS: Final = 1 << 18
_MAX_SLOTS: Final = 1024  # of a span with types: fewer than 16 of its 8 KiB


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
        start, end = binary.types
        size = end - start
        data = memory.read(start + load_bias, size) if 0 < size <= MAX_BYTES else b""
        self._types = TypeDescriptors(data, start + load_bias)
        self._names: dict[int, str] = {}

    def name(self, address: int) -> str:
        """The name of the type at a runtime address, "" if there is none."""
        if address not in self._names:
            self._names[address] = self._types.text(address)
        return self._names[address]

    def of(self, spans: Spans) -> TypedObjects:
        """The objects in spans that tell types, large ones too. Raises TargetGone."""
        large = spans.size_classes == 0
        rows = spans.rows[spans.has_pointers & ~large & (spans.rows["slot"] > _LARGEST_WITHOUT)]
        slots = (rows["pages"] * np.uint64(PAGE_BYTES) // rows["slot"]).astype(np.int64)
        share = min(1.0, _MAX_OBJECTS / max(1, int(slots.sum())))
        if share < 1:
            kept = np.linspace(0, len(rows) - 1, max(1, int(share * len(rows)))).astype(np.int64)
            rows, slots = rows[kept], slots[kept]
        objects, used = Counter[str](), Counter[str]()
        for address, size, count in self._headers(rows, slots):
            if name := self.name(address):
                objects[name] += round(count / share)
                used[name] += round(count * size / share)
        big = spans.rows[large & spans.has_pointers]
        for address, size in zip(big["type"].tolist(), big["slot"].tolist(), strict=True):
            if address and (name := self.name(address)):
                objects[name] += 1
                used[name] += size
        return TypedObjects(objects, used, share)

    def _headers(
        self, rows: npt.NDArray[Any], slots: npt.NDArray[np.int64]
    ) -> list[tuple[int, int, int]]:
        """Of objects that are there: type, size of the slot, and how many have both."""
        places, sizes = [], []
        bits = self._memory.read_records(rows["bits"], np.dtype((np.void, _MAX_SLOTS // 8)))
        for row, count, marks in zip(rows, slots.tolist(), bits, strict=True):
            number = min(count, _MAX_SLOTS)
            marked = np.unpackbits(np.frombuffer(marks.tobytes(), np.uint8), bitorder="little")
            # What lies before the first free slot is in use, or waits to be swept.
            is_there = marked[:number].astype(np.bool_) | (
                np.arange(number) < int(row["free_from"])
            )
            at = np.flatnonzero(is_there).astype(np.uint64)
            places.append(row["start"] + at * row["slot"])
            sizes.append(np.full(len(at), row["slot"], np.int64))
        if not places:
            return []
        words = self._memory.read_records(np.concatenate(places), np.dtype("<u8"))
        pairs = np.stack([words.astype(np.int64), np.concatenate(sizes)], axis=1)
        found, counts = np.unique(pairs, axis=0, return_counts=True)
        return [
            (address, size, count)
            for (address, size), count in zip(found.tolist(), counts.tolist(), strict=True)
        ]
