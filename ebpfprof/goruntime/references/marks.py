"""Which objects of a heap were reached: a bit for each 8 bytes of it, at the object's first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.references.slots import ARENA_SHIFT

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.references.slots import Slots

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_ARENA_CELLS: Final = 1 << (ARENA_SHIFT - 3)
_IN_ARENA: Final = (1 << ARENA_SHIFT) - 1
_BITS: Final = 8
_BIT: Final = np.array([1 << bit for bit in range(_BITS)], np.uint8)


class Marks:
    """A bit for each object. Addresses are relative to the first arena's (Slots.base)."""

    def __init__(self, slots: Slots) -> None:
        arenas = slots.arenas
        self.is_dense = bool((arenas == np.arange(len(arenas))).all())
        self._first = arenas * _ARENA_CELLS
        # Memory that is not written to is not taken: that is most of it if objects are large.
        count = int(arenas.max(initial=0)) + 1
        self.octets = np.zeros(count * _ARENA_CELLS // _BITS, np.uint8)

    def _cells(self, relative: Numbers) -> Numbers:
        if self.is_dense:
            return relative >> 3
        cells: Numbers = self._first[relative >> ARENA_SHIFT] + ((relative & _IN_ARENA) >> 3)
        return cells

    def are_unset(self, relative: Numbers) -> Mask:
        """Which of these have no mark."""
        cells = self._cells(relative)
        are: Mask = (self.octets[cells >> 3] & _BIT[cells & 7]) == 0
        return are

    def set(self, relative: Numbers) -> None:
        """Mark these, which are different ones."""
        cells = self._cells(relative)
        bits = cells & 7
        for bit in range(_BITS):
            chosen = cells[bits == bit] >> 3
            if len(chosen):
                self.octets[chosen] |= _BIT[bit]

    def unset(self, relative: Numbers) -> None:
        """Remove the marks of these, which are different ones."""
        cells = self._cells(relative)
        for cell in cells.tolist():
            self.octets[cell >> 3] &= ~_BIT[cell & 7]

    def cell(self, relative: int) -> int:
        """Which bit an object has."""
        if self.is_dense:
            return relative >> 3
        return int(self._first[relative >> ARENA_SHIFT]) + ((relative & _IN_ARENA) >> 3)
