"""Which objects of spans survived the last collection that swept them.

mspan.allocBits has a bit for each slot, set if the object there was marked (runtime/mheap.go and
mgcsweep.go, Go 1.19 to 1.27). What was allocated since has none, wherever the span stands. Bits are
in blocks of eight bytes (runtime/mheap.go, newMarkBits).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.spans import PAGE_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory

_BLOCK_BITS: Final = 64
_MOST_BLOCKS: Final = 16  # 1,024 objects of eight bytes
_AT_ONCE: Final = 1 << 13


def slots_of(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """How many objects each span has room for; rows as in goruntime.spans.Spans."""
    slots: npt.NDArray[np.int64] = (rows["pages"] * np.uint64(PAGE_BYTES) // rows["slot"]).astype(
        np.int64
    )
    return np.minimum(slots, _MOST_BLOCKS * _BLOCK_BITS)


def marks(
    memory: Memory, rows: npt.NDArray[Any], slots: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """A row for each span, with True for each slot that has a marked object; for few spans.

    Rows are as long as the span with the most slots. Raises TargetGone.
    """
    most = int(slots.max(initial=1))
    blocks = -(-most // _BLOCK_BITS)
    bits = np.zeros((len(rows), blocks * _BLOCK_BITS), np.bool_)
    needed = -(-slots // _BLOCK_BITS)
    for count in np.unique(needed).tolist():
        at = np.flatnonzero(needed == count)
        data = memory.read_records(rows["bits"][at], np.dtype((np.uint8, (8 * count,))))
        bits[at, : count * _BLOCK_BITS] = np.unpackbits(data, axis=1, bitorder="little")
    bits &= np.arange(bits.shape[1]) < slots[:, None]
    return bits


def marked(memory: Memory, rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """How many objects of each span are marked. Raises TargetGone."""
    slots = slots_of(rows)
    parts = [
        marks(memory, rows[at : at + _AT_ONCE], slots[at : at + _AT_ONCE]).sum(axis=1)
        for at in range(0, len(rows), _AT_ONCE)
    ]
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)
