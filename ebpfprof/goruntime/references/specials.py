"""What the runtime keeps beside objects: finalizers, cleanups, samples of the memory profile.

runtime/mheap.go, special, Go 1.19 to 1.27: a list for each span. Behind the head, which all share,
each kind of these has a pointer first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.references.slots import Slots, Words
    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

_WORD_BYTES: Final = 8
_MAX: Final = 1 << 22
_MAX_LEVELS: Final = 1 << 14  # of one span


@dataclass(frozen=True, slots=True)
class Specials:
    """The slot that each belongs to, -1 for none; its kind; its pointer, and where that is."""

    slots: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.uint8]
    pointers: Words
    places: Words


def specials(memory: Memory, layout: RuntimeLayout, slots: Slots) -> Specials:
    """All specials of the heap. Raises TargetGone."""
    head = layout.size("special")
    # The offset is a number of 16 bits up to Go 1.23: the kind follows at once.
    offset_at, kind_at = layout.offset("special", "offset"), layout.offset("special", "kind")
    row = np.dtype(
        {
            "names": ["next", "offset", "kind", "pointer"],
            "formats": ["<u8", "<u8" if kind_at - offset_at == _WORD_BYTES else "<u2", "u1", "<u8"],
            "offsets": [layout.offset("special", "next"), offset_at, kind_at, head],
            "itemsize": head + _WORD_BYTES,
        }
    )
    spans = np.flatnonzero(slots.rows["specials"])
    addresses = slots.rows["specials"][spans]
    none = np.zeros(0, np.uint64)
    parts = [Specials(np.zeros(0, np.int64), np.zeros(0, np.uint8), none, none)]
    total = 0
    for _ in range(_MAX_LEVELS):
        total += len(addresses)
        if not len(addresses) or total > _MAX:
            break
        rows = memory.read_records(addresses, row)
        offsets = rows["offset"].astype(np.uint64)
        number = np.where(slots.counts[spans] > 1, offsets // slots.sizes[spans], np.uint64(0))
        is_there = number < slots.counts[spans].astype(np.uint64)
        slot = np.where(is_there, slots.first[spans] + number.astype(np.int64), -1)
        places = addresses + np.uint64(head)
        parts.append(Specials(slot, rows["kind"].copy(), rows["pointer"].copy(), places))
        is_more = rows["next"] != 0
        spans, addresses = spans[is_more], rows["next"][is_more]
    return Specials(
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        np.concatenate([part.pointers for part in parts]),
        np.concatenate([part.places for part in parts]),
    )
