"""Since when goroutines wait, as looks found them: a lower bound of how long they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_ALL_BITS: Final = (1 << 64) - 1
_SEQUENCE_BITS: Final = 8


def wait_number(goid: int, sequence: int | None) -> int:
    """One wait of a goroutine: its id with the number of the wait (modulo 256).

    Only 56 bits of the id count; those of a hostile target may be larger.
    """
    return (goid << _SEQUENCE_BITS | (sequence or 0) & 0xFF) & _ALL_BITS


def wait_numbers(
    goids: npt.NDArray[np.uint64], sequences: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint64]:
    """The same of many goroutines: sorted, each number once."""
    numbers = goids.astype(np.uint64) << np.uint64(_SEQUENCE_BITS)
    found: npt.NDArray[np.uint64] = np.unique(numbers | (sequences.astype(np.uint64) & 0xFF))
    return found


class WaitTimes:
    """The waits that the last look found, by their numbers, and which look found each first.

    16 bytes for each. A goroutine that went on and waits again counts as waiting all the time once
    in 256 looks.
    """

    def __init__(self) -> None:
        self.waits: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        """Sorted."""
        self.since_ns: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, waits: npt.NDArray[np.uint64], now_ns: int) -> int | None:
        """What one more look found: sorted, each number once.

        Returns since when that one waited that had waited longest of those that went on; None if
        all still wait.
        """
        since_ns = np.full(len(waits), now_ns, np.int64)
        _, now, before = np.intersect1d(waits, self.waits, assume_unique=True, return_indices=True)
        since_ns[now] = self.since_ns[before]
        went_on = np.ones(len(self.waits), np.bool_)
        went_on[before] = False
        ended_ns = int(self.since_ns[went_on].min()) if went_on.any() else None
        self.waits, self.since_ns = waits, since_ns
        return ended_ns

    def since(self, until_ns: int) -> WaitTimes:
        """The waits that were found at that time or before."""
        found, is_old = WaitTimes(), self.since_ns <= until_ns
        found.waits, found.since_ns = self.waits[is_old], self.since_ns[is_old]
        return found
