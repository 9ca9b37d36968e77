"""Reads the sums of stacks that waited, by how long the waits were (bpf/waits/lengths.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.kernel import c_facts
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ebpfprof.kernel.program import BpfProgram

_IN_ROW: Final = c_facts.number("waits/lengths.h", "LENGTHS_IN_ROW")
_ROW_BITS: Final = c_facts.number("waits/lengths.h", "LENGTH_ROW_BITS")
_LEAST_NEGATIVE: Final = 1 << 63


class LengthSums(NamedTuple):
    """The waits of a stack: their count in the kernel's unit, their delay, and their lengths."""

    units: int = 0
    delay_ns: int = 0
    lengths: WaitHistogram = NO_LENGTHS


_NONE: Final = LengthSums()


class StackLengths:
    """The sums of all stacks at one moment; histograms are made of those that are asked for."""

    def __init__(
        self,
        sums: Mapping[int, tuple[int, int, int, int]],
        buckets: Sequence[int],
        counts: Sequence[float],
    ) -> None:
        """All buckets of all stacks, one behind the other, and how many waits each has.

        `sums` are, by the keys of the stacks without the bits that have the number of a row: where
        its buckets begin and end, the count in the kernel's unit, and the delay.
        """
        self._sums, self._buckets, self._counts = sums, buckets, counts

    def of(self, key: int) -> LengthSums:
        """Those of the stack with this key in `totals`."""
        found = self._sums.get(key >> _ROW_BITS)
        if found is None:
            return _NONE
        begin, end, units, delay_ns = found
        buckets, counts = tuple(self._buckets[begin:end]), tuple(self._counts[begin:end])
        return LengthSums(units, delay_ns, WaitHistogram(buckets, counts))


NO_STACKS: Final = StackLengths({}, (), ())


class LengthTable:
    """The map `lengths`. Two stacks share rows only if all but six bits of their hashes agree."""

    def __init__(self, program: BpfProgram, count_shift: int) -> None:
        """`program` need not be loaded yet; its counts have so many fractional bits."""
        self._program, self._shift = program, count_shift

    def read(self) -> StackLengths:
        """Read all rows."""
        import numpy as np

        keys, rows = self._program.maps["lengths"].rows()
        if not len(keys):
            return NO_STACKS
        order = keys.argsort()
        keys, units, delays = keys[order], rows["counts"][order], rows["delay_ns"][order]
        stacks = keys >> np.uint64(_ROW_BITS)
        first = np.flatnonzero(np.diff(stacks, prepend=~stacks[:1]))
        # What is taken back from a row may be there before what was added to it is.
        at, column = np.nonzero((units > 0) & (units < _LEAST_NEGATIVE))
        row = (keys & np.uint64((1 << _ROW_BITS) - 1)).astype(np.intp)[at]
        limits = [*np.searchsorted(at, first).tolist(), len(at)]
        sums = zip(
            limits,
            limits[1:],
            np.add.reduceat(units.sum(axis=1), first).tolist(),
            np.add.reduceat(delays, first).tolist(),
            strict=False,
        )
        by_stack = dict(zip(stacks[first].tolist(), sums, strict=True))
        counts, whole = units[at, column], 1 << self._shift
        is_whole = not (counts % whole).any()
        numbers = counts >> self._shift if is_whole else counts / whole
        return StackLengths(by_stack, (row * _IN_ROW + column).tolist(), numbers.tolist())

    def forget(self, stacks: Sequence[int]) -> None:
        """Delete the rows of the stacks with these keys."""
        import numpy as np

        bits = np.uint64(_ROW_BITS)
        keys, _ = self._program.maps["lengths"].rows()
        ours = np.isin(keys >> bits, np.array(stacks, np.uint64) >> bits)
        self._program.maps["lengths"].delete(keys[ours])
