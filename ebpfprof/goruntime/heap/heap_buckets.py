"""Go's own memory profile, read from the memory of a target that keeps running.

The runtime keeps a bucket for each stack and size of sampled allocations, with four sums of what
was allocated and freed: `active`, which is what Go publishes, and three `future` ones, that of a
cycle of the garbage collector each (runtime/mprof.go, Go 1.17 to 1.27). In cycle C allocations add
to future[(C+2)%3], the sweep's frees to future[(C+1)%3], and a flush moves future[C%3] to active.
So active + future[C%3] is what Go publishes, before and after that flush. Two reads that agree on
it, in one cycle, were not torn.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.console.text import printable
from ebpfprof.errors import UnsupportedTarget, to_type
from ebpfprof.goruntime.godebug import memory_profile_rate
from ebpfprof.goruntime.heap.bucket_list import BucketList
from symbolizer.codeanalysis.heap_globals import has_memory_profile

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from ebpfprof.process.process import Target
    from symbolizer import GoBinary
    from symbolizer.codeanalysis.heap_globals import HeapGlobals
    from symbolizer.go.runtime_layout import RuntimeLayout

    Counts = npt.NDArray[np.int64]

_FUTURES: Final = 3
_DEFAULT_RATE: Final = 512 << 10  # runtime.MemProfileRate (bytes), as the program's file has it
_ATTEMPTS: Final = 12
_PAUSE_S: Final = 0.001
_AT_ONCE: Final = 1024
_ALL_TAKEN: Final = (1 << 31).to_bytes(4, "little")  # sweepDrainedMask (runtime/mgcsweep.go)
_NO_SWEEPERS: Final = (1).to_bytes(8, "little")
_MOST_BYTES: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class HeapCounts:
    """The sampled allocations of each bucket, unscaled, in objects.

    `stacks` has return addresses, one for each logical frame, innermost first; `sizes` the size of
    the objects in bytes. `allocs` and `frees` are what Go publishes after `cycle` collections, and
    `first_cycle` is less if these came too fast to read all buckets within one. `new_allocs` counts
    all allocations until now; `swept_allocs` and `swept_frees` those until the latest collection,
    None while the runtime has not swept all after it. `rate` is runtime.MemProfileRate (bytes).
    `is_collected` says that there was a collection: before, Go publishes all it has. `beyond` says
    that there are more buckets than we read, `corrupt` counts those that contradict themselves.
    `is_torn`: some changed at each attempt to read them, so that counts may be off.
    """

    stacks: list[tuple[int, ...]]
    sizes: Counts
    allocs: Counts
    frees: Counts
    new_allocs: Counts
    swept_allocs: Counts | None
    swept_frees: Counts | None
    rate: int
    cycle: int
    first_cycle: int
    is_collected: bool
    beyond: bool
    corrupt: int
    is_torn: bool = False


def keeps_profile(buckets: HeapBuckets, binary: GoBinary, target: Target) -> bool:
    """Whether the program keeps a memory profile, also if it has only just begun to start.

    Then the rate is the default, which the runtime sets to 0 if GODEBUG says so, or if the linker
    left the profile out (runtime/proc.go, schedinit). Raises as HeapBuckets.rate().
    """
    rate = buckets.rate()
    if rate != _DEFAULT_RATE:
        return rate > 0
    return has_memory_profile(binary) and memory_profile_rate(binary, target) != 0


def require_profile(target: Target, buckets: HeapBuckets) -> None:
    """Raise UnsupportedTarget if the program keeps no memory profile."""
    if buckets.rate() <= 0:
        raise UnsupportedTarget(
            f"Process {target.pid} ({printable(target.name)}) keeps no memory profile: its "
            "MemProfileRate is 0. The linker sets that where nothing in the program reads the "
            "profile; a blank import of net/http/pprof changes it. To see types and sizes of "
            f"objects without it:{to_type(f'ebpfprof memory --pid {target.pid}')}"
        )


class HeapBuckets:
    """Reads the buckets of one target, any number of times; stacks are read once each."""

    def __init__(
        self, memory: Memory, layout: RuntimeLayout, heap_globals: HeapGlobals, load_bias: int
    ) -> None:
        self._memory = memory
        self._rate = heap_globals.rate + load_bias
        self._cycle = heap_globals.cycle + load_bias
        self._cycle_shift = heap_globals.cycle_shift
        self._lock = heap_globals.active_lock + layout.offset("mutex", "key") + load_bias
        self._sweep = heap_globals.sweep + load_bias
        # Go 1.17 has the flag in one word, and how many sweep in the next one.
        self._swept = _NO_SWEEPERS if layout.has("mheap", "sweepDrained") else _ALL_TAKEN
        # Go 1.24 and later keep a bit of their own in the word (runtime/lock_spinbit.go).
        self._lock_mask = 1 if layout.has("m", "mWaitList.startTicks") else -1
        self._list = BucketList(memory, layout, heap_globals.buckets + load_bias)
        self._record = _record(layout)

    def rate(self) -> int:
        """runtime.MemProfileRate in bytes: 0 if the profile is off. Raises as read()."""
        return int.from_bytes(self._memory.read(self._rate, 8), "little", signed=True)

    def read(self) -> HeapCounts:
        """All buckets now. Raises TargetGone, or UnreadableMemory for a corrupt list."""
        for _ in range(_ATTEMPTS):
            cycle = self._cycle_now()
            self._list.update()
            records, is_settled = self._settled(self._list.records, cycle)
            if is_settled:
                return self._counts(records, np.full(len(records), cycle), cycle)
            time.sleep(_PAUSE_S)
        return self._piecewise()

    def _piecewise(self) -> HeapCounts:
        """The same where collections come too fast: each piece within one cycle."""
        arrays, cycles, is_torn = [], [], False
        for first in range(0, max(1, len(self._list.records)), _AT_ONCE):
            addresses = self._list.records[first : first + _AT_ONCE]
            for _ in range(_ATTEMPTS):
                cycle = self._cycle_now()
                records, is_settled = self._settled(addresses, cycle)
                if is_settled:
                    break
            is_torn |= not is_settled
            arrays.append(records)
            cycles.append(np.full(len(addresses), cycle))
        counts = self._counts(np.concatenate(arrays), np.concatenate(cycles), cycle)
        return replace(counts, is_torn=is_torn)

    def _settled(
        self, addresses: npt.NDArray[np.uint64], cycle: int
    ) -> tuple[npt.NDArray[Any], bool]:
        """The records at these addresses, and whether they are of that one cycle, untorn."""
        first = self._memory.read_records(addresses, self._record)
        is_free = self._is_free()
        second = self._memory.read_records(addresses, self._record)
        same = all(
            np.array_equal(_published(first, name, cycle), _published(second, name, cycle))
            for name in ("allocs", "frees")
        )
        return second, same and is_free and self._is_free() and self._cycle_now() == cycle

    def _counts(
        self, records: npt.NDArray[Any], cycles: npt.NDArray[np.int64], cycle: int
    ) -> HeapCounts:
        allocs, frees = (_published(records, name, cycles) for name in ("allocs", "frees"))
        is_collected = bool(allocs.any() or frees.any())
        new = {
            name: records["active"][name] + records["future"][name].sum(axis=1)
            for name in ("allocs", "frees")
        }
        if not is_collected:  # runtime/mprof.go, memProfileInternal: nothing was collected yet
            allocs, frees = new["allocs"], new["frees"]
        swept: list[Counts | None] = [None, None]
        if self._is_swept() and self._cycle_now() == cycle and is_collected:
            swept = [
                _published(records, name, cycles) + _future(records, name, cycles + 1)
                for name in ("allocs", "frees")
            ]
        sizes, rate = self._list.sizes, self.rate()
        each_stands_for = np.maximum(sizes, max(1, min(rate, _MOST_BYTES)))  # bytes
        good = np.ones(len(sizes), np.bool_)
        for counts in (
            allocs,
            frees,
            *new.values(),
            *(array for array in swept if array is not None),
        ):
            good &= (counts >= 0) & (counts <= _MOST_BYTES // each_stands_for)
        stacks = [stack for stack, kept in zip(self._list.stacks, good, strict=True) if kept]
        kept_swept = [None if column is None else column[good] for column in swept]
        return HeapCounts(
            stacks=stacks,
            sizes=sizes[good],
            allocs=allocs[good],
            frees=frees[good],
            new_allocs=new["allocs"][good],
            swept_allocs=kept_swept[0],
            swept_frees=kept_swept[1],
            rate=rate,
            cycle=cycle,
            first_cycle=int(cycles.min(initial=cycle)),
            is_collected=is_collected,
            beyond=self._list.is_cut,
            corrupt=self._list.corrupt + int((~good).sum()),
        )

    def _cycle_now(self) -> int:
        """The number of the cycle."""
        return int.from_bytes(self._memory.read(self._cycle, 4), "little") >> self._cycle_shift

    def _is_free(self) -> bool:
        word = int.from_bytes(self._memory.read(self._lock, 8), "little", signed=True)
        return not word & self._lock_mask

    def _is_swept(self) -> bool:
        return self._memory.read(self._sweep, len(self._swept)) == self._swept


def _record(layout: RuntimeLayout) -> np.dtype[Any]:
    """runtime.memRecord; the bytes are the number of objects times their size."""
    cycle = np.dtype(
        {
            "names": ["allocs", "frees"],
            "formats": ["<i8", "<i8"],
            "offsets": [layout.offset("memRecordCycle", name) for name in ("allocs", "frees")],
            "itemsize": layout.size("memRecordCycle"),
        }
    )
    return np.dtype(
        {
            "names": ["active", "future"],
            "formats": [cycle, (cycle, (_FUTURES,))],
            "offsets": [layout.offset("memRecord", name) for name in ("active", "future")],
            "itemsize": layout.size("memRecord"),
        }
    )


def _future(
    records: npt.NDArray[Any], name: str, cycles: npt.NDArray[np.int64] | int
) -> npt.NDArray[np.int64]:
    sums: npt.NDArray[np.int64] = records["future"][name][
        np.arange(len(records)), cycles % _FUTURES
    ]
    return sums


def _published(
    records: npt.NDArray[Any], name: str, cycles: npt.NDArray[np.int64] | int
) -> npt.NDArray[np.int64]:
    sums: npt.NDArray[np.int64] = records["active"][name] + _future(records, name, cycles)
    return sums
