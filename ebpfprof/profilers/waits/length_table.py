"""Reads sums by length: of waits, charges, holds, times in the run queue (bpf/waits/lengths.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ebpfprof.kernel import c_facts
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from ebpfprof.profilers.labels import mixed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from ebpfprof.kernel.program import BpfProgram

_IN_ROW: Final = c_facts.number("waits/lengths.h", "LENGTHS_IN_ROW")
_ROW_BITS: Final = c_facts.number("waits/lengths.h", "LENGTH_ROW_BITS")
_LEAST_NEGATIVE: Final = 1 << 63
_RUN_QUEUE_ROWS: Final = c_facts.number("waits/lengths.h", "RUN_QUEUE_ROWS")
_HOLD_ROWS: Final = c_facts.number("waits/lengths.h", "HOLD_ROWS")


def run_queue_key(stack: int) -> int:
    """The key of the time in the run queue after waits of the stack with this key in `totals`."""
    return stack ^ _RUN_QUEUE_ROWS


def hold_key(lock: int) -> int:
    """The key of the holds of the lock with this key in `locks`."""
    return mixed(lock, _HOLD_ROWS)


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
        buckets: npt.NDArray[Any] | None = None,
        counts: npt.NDArray[Any] | None = None,
    ) -> None:
        """All buckets of all stacks, one behind the other, and how many waits each has.

        `sums` are, by the keys of the stacks without the bits that have the number of a row: where
        its buckets begin and end, the count in the kernel's unit, and the delay.
        """
        self._sums, self._buckets, self._counts = sums, buckets, counts

    def of(self, key: int) -> LengthSums:
        """Those with this key: of a stack in `totals`, of a pair in `pairs`, or one made above."""
        sums = self._sums.get(key >> _ROW_BITS)
        if sums is None or self._buckets is None or self._counts is None:
            return _NONE
        begin, end, units, delay_ns = sums
        buckets, counts = self._buckets[begin:end].tolist(), self._counts[begin:end].tolist()
        return LengthSums(units, delay_ns, WaitHistogram(tuple(buckets), tuple(counts)))


NO_STACKS: Final = StackLengths({})


class LengthTable:
    """The map `lengths`. Two keys share rows only if all but six bits of their hashes agree."""

    def __init__(self, program: BpfProgram, count_shift: int) -> None:
        """`program` need not be loaded yet; its counts have so many fractional bits."""
        self._program, self._shift = program, count_shift

    def read(self, of: npt.NDArray[np.uint64] | None = None) -> StackLengths:
        """Read the rows with these keys, see StackLengths.of; None: all rows."""
        import numpy as np

        keys, rows = self._program.maps["lengths"].rows()
        if of is not None:
            bits = np.uint64(_ROW_BITS)
            is_wanted = np.isin(keys >> bits, of >> bits)
            keys, rows = keys[is_wanted], rows[is_wanted]
        if not len(keys):
            return NO_STACKS
        units = rows["counts"]
        # What is taken back from a row may be there before what was added to it is.
        at, column = np.nonzero((units > 0) & (units < _LEAST_NEGATIVE))
        counts, whole, key_of = units[at, column], 1 << self._shift, keys[at]
        row = key_of & np.uint64((1 << _ROW_BITS) - 1)
        buckets = (row * np.uint64(_IN_ROW) + column.astype(np.uint64)).astype(np.uint16)
        del at, column, row
        in_order = key_of.argsort(kind="stable")
        counts, buckets = counts[in_order], buckets[in_order]
        stack_of = key_of[in_order] >> np.uint64(_ROW_BITS)
        del key_of, in_order
        order = keys.argsort()
        stacks = keys[order] >> np.uint64(_ROW_BITS)
        first = np.flatnonzero(np.diff(stacks, prepend=~stacks[:1]))
        limits = [*np.searchsorted(stack_of, stacks[first]).tolist(), len(stack_of)]
        del stack_of
        sums = zip(
            limits,
            limits[1:],
            np.add.reduceat(units.sum(axis=1)[order], first).tolist(),
            np.add.reduceat(rows["delay_ns"][order], first).tolist(),
            strict=False,
        )
        by_stack = dict(zip(stacks[first].tolist(), sums, strict=True))
        is_whole = not (counts % whole).any()
        return StackLengths(
            by_stack, buckets, counts >> self._shift if is_whole else counts / whole
        )

    def forget(self, of: Sequence[int]) -> None:
        """Delete the rows with these keys: see StackLengths.of."""
        import numpy as np

        bits = np.uint64(_ROW_BITS)
        keys, _ = self._program.maps["lengths"].rows()
        ours = np.isin(keys >> bits, np.array(of, np.uint64) >> bits)
        self._program.maps["lengths"].delete(keys[ours])
