"""Whether objects on the heap of a target are still there, as the latest collection left it.

When the runtime has swept a span, mspan.allocBits has a bit for each slot, set if the object there
was marked: it survived (runtime/mgcsweep.go, Go 1.19 to 1.27). That holds for objects which were
allocated before that collection's sweep began, whatever was put into free slots since. For later
ones the bits say nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.arenas import Arenas
from ebpfprof.goruntime.records import record
from ebpfprof.goruntime.spans import PAGE_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary

_MAX_PAGES: Final = 1 << 35
_IN_USE: Final = 1  # mSpanInUse
_SWEPT: Final = (0, 3)  # mspan.sweepgen less mheap.sweepgen: swept, or swept and cached
_SPAN: Final = (
    *(("start", "startAddr", "<u8"), ("pages", "npages", "<u8"), ("slot", "elemsize", "<u8")),
    *(("state", "state", "u1"), ("bits", "allocBits", "<u8"), ("generation", "sweepgen", "<u4")),
)
GONE: Final = 0
ALIVE: Final = 1
UNKNOWN: Final = 2
"""The span is not swept yet."""


class Survivors:
    """Asks the spans of one target."""

    def __init__(self, memory: Memory, binary: GoBinary, heap: int, load_bias: int) -> None:
        """`heap` is the runtime address of runtime.mheap_.

        Raises GoTableError if the code does not show where the arenas are.
        """
        self._memory, self._layout = memory, binary.layout
        self._arenas = Arenas(memory, binary, load_bias)
        self.generation_address = heap + binary.layout.offset("mheap", "sweepgen")
        """Of runtime.mheap_.sweepgen, which grows by two with each collection."""
        self._span = record(binary.layout, "mspan", _SPAN)

    def generation(self) -> int:
        """The latest collection, as the runtime counts them. Raises TargetGone."""
        return int.from_bytes(self._memory.read(self.generation_address, 4), "little")

    def ask(
        self, addresses: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64], generation: int
    ) -> npt.NDArray[np.uint8]:
        """GONE, ALIVE or UNKNOWN for each object, after the collection `generation`.

        All must have been allocated before its sweep, and no more than one other collection may end
        until the call returns: see generation(). Raises TargetGone or UnreadableMemory.
        """
        fates = np.full(len(addresses), GONE, np.uint8)
        spans = self._arenas.spans_at(addresses)
        known = np.flatnonzero(spans)
        spans = spans[known]
        unique, which = np.unique(spans, return_inverse=True)
        rows = self._memory.read_records(unique, self._span)[which]
        offset = addresses[known] - rows["start"]
        held = rows["pages"] * np.uint64(PAGE_BYTES)
        is_there = (
            (rows["state"] == _IN_USE)
            & (rows["pages"] < _MAX_PAGES)
            & (rows["slot"] == sizes[known])
            & (addresses[known] >= rows["start"])
            & (offset < held)
        )
        known, rows, offset = known[is_there], rows[is_there], offset[is_there]
        ahead = (rows["generation"] - np.uint32(generation)).astype(np.uint32)
        is_swept = np.isin(ahead, _SWEPT)
        fates[known[~is_swept]] = UNKNOWN
        known, rows, offset = known[is_swept], rows[is_swept], offset[is_swept]
        slots = offset // rows["slot"]
        octets = self._memory.read_records(rows["bits"] + (slots >> np.uint64(3)), np.dtype("u1"))
        fates[known] = (octets >> (slots & np.uint64(7)).astype(np.uint8)) & 1
        return fates
