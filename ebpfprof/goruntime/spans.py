"""The spans of a target's heap: which memory holds objects of which size.

runtime.mheap_.allspans has all spans that there ever were (runtime/mheap.go, Go 1.19 to 1.27). A
span whose numbers contradict each other is left out and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.records import record
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

PAGE_BYTES: Final = 8192
_MAX_SPANS: Final = 1 << 22
_MAX_PAGES: Final = 1 << 35
_ATTEMPTS: Final = 4
_IN_USE: Final = 1  # mSpanInUse
_FIELDS: Final = (
    *(("start", "startAddr", "<u8"), ("pages", "npages", "<u8"), ("slot", "elemsize", "<u8")),
    *(("class", "spanclass", "u1"), ("state", "state", "u1"), ("type", "largeType", "<u8")),
    *(("count", "allocCount", "<u2"), ("free_from", "freeindex", "<u2")),
    *(("bits", "allocBits", "<u8"), ("generation", "sweepgen", "<u4")),
    ("specials", "specials", "<u8"),
)


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans in use, as records of numpy: start, pages, slot (bytes), class, type and more.

    `class` is the size class times two, and one more if no object there has pointers. `corrupt`
    counts those that make no sense, `beyond` those that were not read.
    """

    rows: npt.NDArray[Any]
    corrupt: int
    beyond: int

    @property
    def size_classes(self) -> npt.NDArray[np.int64]:
        """The size class of each."""
        classes: npt.NDArray[np.int64] = (self.rows["class"] >> 1).astype(np.int64)
        return classes

    @property
    def has_pointers(self) -> npt.NDArray[np.bool_]:
        """Whether objects of each may have pointers."""
        is_scanned: npt.NDArray[np.bool_] = (self.rows["class"] & 1) == 0
        return is_scanned

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """How many bytes each takes."""
        in_bytes: npt.NDArray[np.int64] = self.rows["pages"].astype(np.int64) * PAGE_BYTES
        return in_bytes


def all_spans(memory: Memory, layout: RuntimeLayout, heap: int) -> Spans:
    """The spans in use. `heap` is the runtime address of runtime.mheap_.

    Raises TargetGone, or UnreadableMemory (there is no list of spans).
    """
    addresses, beyond = _addresses(memory, heap + layout.offset("mheap", "allspans"))
    rows = memory.read_records(addresses, record(layout, "mspan", _FIELDS))
    rows = rows[rows["state"] == _IN_USE]
    slot, pages = rows["slot"], rows["pages"]
    is_sound = (
        (slot >= 8)
        & (pages > 0)
        & (pages < _MAX_PAGES)
        & (slot <= pages * np.uint64(PAGE_BYTES))
        & ((rows["class"] >> 1) < len(layout.size_classes))
        & (rows["start"] % PAGE_BYTES == 0)
    )
    return Spans(rows[is_sound], int((~is_sound).sum()), beyond)


def _addresses(memory: Memory, at: int) -> tuple[npt.NDArray[np.uint64], int]:
    """The addresses in the slice of spans, and how many more there are."""
    for attempt in range(_ATTEMPTS):
        pointer, length = np.frombuffer(memory.read(at, 16), "<u8").tolist()
        count = min(length, _MAX_SPANS)
        try:
            data = memory.read(pointer, 8 * count) if count else b""
        except UnreadableMemory:  # the list has moved, or makes no sense
            if attempt + 1 == _ATTEMPTS:
                raise
            continue
        return np.frombuffer(data, np.uint64), length - count
    raise AssertionError
