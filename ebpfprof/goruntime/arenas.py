"""Which span the heap of a target has at an address.

runtime/malloc.go and mheap.go, linux/amd64, Go 1.19 to 1.27: one table of arenas of 64 MiB, which
begins at the address -2**47; each has a pointer to a span for each of its pages of 8 KiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from symbolizer.codeanalysis.globals import arenas_address

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary

PAGE_SHIFT: Final = 13
_BASE: Final = 1 << 47
_SHIFT: Final = 26
_PAGES: Final = 1 << (_SHIFT - PAGE_SHIFT)
_POINTER: Final = np.dtype("<u8")


class Arenas:
    """The arenas of one target."""

    def __init__(self, memory: Memory, binary: GoBinary, load_bias: int) -> None:
        """Raises GoTableError if the code does not show where they are."""
        self._memory = memory
        self._table_at = arenas_address(binary) + load_bias
        self._spans_offset = np.uint64(binary.layout.offset("heapArena", "spans"))

    def spans_at(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The address of the runtime.mspan at each address; 0 if there is none.

        Raises TargetGone, or UnreadableMemory (there is no table).
        """
        spans = np.zeros(len(addresses), np.uint64)
        table = int.from_bytes(self._memory.read(self._table_at, 8), "little")
        possible = np.flatnonzero((addresses > 0) & (addresses < _BASE))
        numbers = (addresses[possible] + np.uint64(_BASE)) >> np.uint64(_SHIFT)
        unique, which = np.unique(numbers, return_inverse=True)
        arenas = self._memory.read_records(np.uint64(table) + np.uint64(8) * unique, _POINTER)[
            which
        ]
        possible, arenas = possible[arenas != 0], arenas[arenas != 0]
        pages = (addresses[possible] >> np.uint64(PAGE_SHIFT)) % np.uint64(_PAGES)
        places = arenas + self._spans_offset + np.uint64(8) * pages
        spans[possible] = self._memory.read_records(places, _POINTER)
        return spans
