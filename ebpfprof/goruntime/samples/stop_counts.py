"""How often goroutines stopped running, from samples of all goroutines.

Go's scheduler counts the stops of each goroutine in g.trackingSeq, modulo 256. So the sum of its
differences between samples is exact as long as a goroutine stops less than 256 times between two of
them. A goroutine that ends between samples has one difference too few.

What is a stop differs between versions (runtime/proc.go, casgstatus): each park, yield and
preemption, growth of the stack; system calls up to Go 1.25, and later only those that lost their
processor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.fields import GOID_SHIFT, SEQUENCE_SHIFT

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.table import Heads

_GOID: Final = np.uint64(GOID_SHIFT)
_SEQUENCE: Final = np.uint64(SEQUENCE_SHIFT)
_MODULUS: Final = np.uint64(255)


class StopCounts:
    """The stops of all goroutines that two samples saw."""

    def __init__(self) -> None:
        self._goids: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._sequences: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._ended: dict[int, int] = {}
        self.most = 0
        """The largest number of stops of a goroutine between two samples, modulo 256."""

    def add(self, heads: Heads) -> None:
        """Add a sample. The list of goroutines only grows, so each has its place in all samples."""
        goids = np.where(heads.is_there, heads.waits >> _GOID, 0)
        sequences = heads.waits >> _SEQUENCE & _MODULUS
        added = len(goids) - len(self._goids)
        before = np.pad(self._goids, (0, added))
        counts = np.pad(self._counts, (0, added))
        stops = (sequences - np.pad(self._sequences, (0, added))) & _MODULUS
        is_same = (goids == before) & (goids != 0)
        counts[is_same] += stops[is_same].astype(np.int64)
        self.most = max(self.most, int(stops[is_same].max(initial=0)))
        for place in np.flatnonzero((before != 0) & ~is_same).tolist():
            self._ended[int(before[place])] = int(counts[place])
        counts[~is_same] = 0
        self._goids, self._sequences, self._counts = goids, sequences, counts

    def by_goid(self) -> dict[int, int]:
        """The stops of each goroutine since the first sample that saw it."""
        there = np.flatnonzero(self._goids).tolist()
        return self._ended | {int(self._goids[at]): int(self._counts[at]) for at in there}
