"""Reads the sums of stacks that waited, by how long the waits were (bpf/waits/lengths.h)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.kernel import c_facts
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

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
    """The sums of all stacks at one moment."""

    def __init__(self, by_stack: dict[int, LengthSums]) -> None:
        """By the keys of the stacks, without the bits that have the number of a row."""
        self._by_stack = by_stack

    def of(self, key: int) -> LengthSums:
        """Those of the stack with this key in `totals`."""
        return self._by_stack.get(key >> _ROW_BITS, _NONE)


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
            return StackLengths({})
        order = keys.argsort()
        keys, units, delays = keys[order], rows["counts"][order], rows["delay_ns"][order]
        stacks = keys >> np.uint64(_ROW_BITS)
        first = np.flatnonzero(np.diff(stacks, prepend=~stacks[:1]))
        sums = zip(
            stacks[first].tolist(),
            np.add.reduceat(units.sum(axis=1), first).tolist(),
            np.add.reduceat(delays, first).tolist(),
            self._histograms(keys, units, first),
            strict=True,
        )
        return StackLengths({stack: LengthSums(*each) for stack, *each in sums})

    def _histograms(
        self,
        keys: npt.NDArray[np.uint64],
        units: npt.NDArray[np.uint64],
        first: npt.NDArray[np.intp],
    ) -> list[WaitHistogram]:
        """Those of each stack; `first` has where its rows begin."""
        import numpy as np

        # What is taken back from a row may be there before what was added to it is.
        at, column = np.nonzero((units > 0) & (units < _LEAST_NEGATIVE))
        counts = units[at, column]
        row = (keys & np.uint64((1 << _ROW_BITS) - 1)).astype(np.intp)[at]
        buckets = (row * _IN_ROW + column).tolist()
        whole = 1 << self._shift
        is_whole = not (counts % whole).any()
        numbers = (counts >> self._shift if is_whole else counts / whole).tolist()
        limits = [*np.searchsorted(at, first).tolist(), len(buckets)]
        return [
            WaitHistogram(tuple(buckets[begin:end]), tuple(numbers[begin:end]))
            for begin, end in pairwise(limits)
        ]

    def forget(self, stacks: Sequence[int]) -> None:
        """Delete the rows of the stacks with these keys."""
        import numpy as np

        bits = np.uint64(_ROW_BITS)
        keys, _ = self._program.maps["lengths"].rows()
        ours = np.isin(keys >> bits, np.array(stacks, np.uint64) >> bits)
        self._program.maps["lengths"].delete(keys[ours])
