"""The runtime's own statistics of memory, read from a target that keeps running: runtime.MemStats.

As readmemstats_m in runtime/mstats.go (Go 1.17 to 1.27) computes them, but for one thing: Go stops
the world and flushes the caches of all processors first. Here, what these are about to count is
added (ProcessorCaches). Counters change while they are read:
sums of a busy program are of one moment within microseconds, not of an instant.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.heap.heap_goal import heap_goal
from ebpfprof.goruntime.heap.processor_caches import ProcessorCaches
from ebpfprof.goruntime.records import record
from ebpfprof.profile.memory import Collector, MemoryStatistics, SizeClass

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary
    from symbolizer.codeanalysis.memory_globals import MemoryGlobals

    _Sums = dict[str, npt.NDArray[np.uint64]]

_GENERATIONS: Final = 3
_ATTEMPTS: Final = 8
_PAUSES: Final = 256  # of memstats.pause_ns
_NO_LIMIT: Final = (1 << 63) - 1
_WORD_BYTES: Final = 8


class MemoryStatisticsReader:
    """Reads the statistics of one target, any number of times."""

    def __init__(
        self, memory: Memory, binary: GoBinary, memory_globals: MemoryGlobals, load_bias: int
    ) -> None:
        self._memory, self._layout = memory, binary.layout
        self._heap = memory_globals.heap + load_bias
        self._statistics = memory_globals.statistics + load_bias
        self._controller = memory_globals.controller + load_bias
        self._caches = ProcessorCaches(memory, binary, load_bias)
        layout = self._layout
        names = tuple(layout.structs["heapStatsDelta"].fields)
        counts = {"smallAllocCount", "smallFreeCount"}
        self._classes = len(layout.size_classes)
        self._delta = record(
            layout,
            "heapStatsDelta",
            [(n, n, f"({self._classes},)<u8" if n in counts else "<u8") for n in names],
        )

    def read(self) -> MemoryStatistics:
        """The statistics now. Raises TargetGone or UnreadableMemory."""
        for _ in range(_ATTEMPTS):
            before = self._moment()
            read = self._read()
            is_settled = self._moment() == before
            if is_settled:
                break
        return self._made(*read, is_settled=is_settled)

    def pauses(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """PauseNs and PauseEnd: of the last 256 collections, by their number; ns and Unix ns.

        Raises TargetGone or UnreadableMemory.
        """
        at = self._statistics
        lengths, ends = (
            self._memory.read(at + self._layout.offset("mstats", name), _PAUSES * _WORD_BYTES)
            for name in ("pause_ns", "pause_end")
        )
        return tuple(np.frombuffer(lengths, "<u8").tolist()), tuple(
            np.frombuffer(ends, "<u8").tolist()
        )

    def heap(self) -> tuple[int, int, int]:
        """How many collections there were, bytes in use at the end of the last one, and live ones.

        This takes 3 reads of a word. Raises TargetGone or UnreadableMemory.
        """
        cycles = self._number(self._statistics + self._layout.offset("mstats", "numgc"), 4)
        marked, live = (
            self._number(
                self._controller + self._layout.offset("gcControllerState", name), _WORD_BYTES
            )
            for name in ("heapMarked", "heapLive")
        )
        return cycles, marked, live

    def _moment(self) -> tuple[int, int, int]:
        """What changes whenever a collection begins or ends, or the counters are put together."""
        layout = self._layout
        gen = layout.offset("mstats", "heapStats") + layout.offset("consistentHeapStats", "gen")
        return (
            self._number(self._statistics + gen, 4),
            self._number(self._statistics + layout.offset("mstats", "numgc"), 4),
            self._number(self._heap + layout.offset("mheap", "sweepgen"), 4),
        )

    def _read(self) -> tuple[_Sums, bytes, bytes]:
        """The sums of runtime.heapStatsDelta, runtime.memstats and runtime.gcController."""
        layout = self._layout
        start = layout.offset("mstats", "heapStats")
        data = self._memory.read(self._statistics, layout.size("mstats"))
        controller = self._memory.read(self._controller, layout.size("gcControllerState"))
        # After the sums: a span that is given back in between is missing, not there twice.
        pending, tiny = self._caches.pending()
        deltas = np.frombuffer(data[start:], self._delta, _GENERATIONS)
        sums = {
            name: deltas[name].sum(axis=0, dtype=np.uint64) for name in deltas.dtype.names or ()
        }
        sums["smallAllocCount"] = sums["smallAllocCount"] + pending
        # As the runtime's own sum, it wraps around; of numpy's scalars that is a warning.
        sums["tinyAllocCount"] = np.uint64((int(sums["tinyAllocCount"]) + tiny) % (1 << 64))
        return sums, data, controller

    def _made(
        self,
        sums: _Sums,
        data: bytes,
        controller: bytes,
        *,
        is_settled: bool,
    ) -> MemoryStatistics:
        def of(name: str) -> int:
            return _signed(int(sums[name])) if name in sums else 0

        def word(name: str) -> int:
            return _word(data, self._layout.offset("mstats", name))

        classes = self._size_classes(sums)
        small = [size_class for size_class in classes if size_class.size]
        total = of("largeAlloc") + sum(size_class.mallocs * size_class.size for size_class in small)
        freed = of("largeFree") + sum(size_class.frees * size_class.size for size_class in small)
        extra = of("inWorkBufs") + of("inPtrScalarBits")
        # readmemstats_m makes sure that these equal gcController's, or memstats' in Go 1.17, 1.18.
        in_use, released = of("inHeap"), of("released")
        mapped = of("committed") - of("inStacks") - extra + released
        own = ("stacks_sys", "mspan_sys", "mcache_sys", "buckhash_sys", "gcMiscSys", "other_sys")
        tiny = of("tinyAllocCount")
        return MemoryStatistics(
            total_allocated=total,
            total_freed=freed,
            mallocs=tiny + sum(size_class.mallocs for size_class in classes),
            frees=tiny + sum(size_class.frees for size_class in classes),
            tiny_mallocs=tiny,
            heap_mapped=mapped,
            heap_in_use=in_use,
            idle=mapped - in_use,
            released=released,
            stacks_in_use=of("inStacks"),
            stacks_mapped=of("inStacks") + word("stacks_sys"),
            spans_in_use=self._of_heap("spanalloc.inuse"),
            spans_mapped=word("mspan_sys"),
            caches_in_use=self._of_heap("cachealloc.inuse"),
            caches_mapped=word("mcache_sys"),
            profile_buckets=word("buckhash_sys"),
            collector_mapped=word("gcMiscSys") + extra,
            other_mapped=word("other_sys"),
            mapped=mapped + of("inStacks") + extra + sum(map(word, own)),
            collector=self._collector(data, controller),
            classes=classes,
            is_settled=is_settled,
        )

    def _size_classes(self, sums: _Sums) -> tuple[SizeClass, ...]:
        """Each class in order, large objects first."""
        mallocs, frees = int(sums["largeAllocCount"]), int(sums["largeFreeCount"])
        used = int(sums["largeAlloc"]) - int(sums["largeFree"])
        size_classes = [SizeClass(0, mallocs, frees, mallocs - frees, used)]
        rows = zip(
            self._layout.size_classes,
            sums["smallAllocCount"].tolist(),
            sums["smallFreeCount"].tolist(),
            strict=True,
        )
        for size, mallocs, frees in rows:
            if size:
                objects = _signed(mallocs - frees)
                size_classes.append(SizeClass(size, mallocs, frees, objects, objects * size))
        return tuple(size_classes)

    def _collector(self, data: bytes, controller: bytes) -> Collector:
        layout = self._layout

        def at(name: str) -> int:
            return layout.offset("mstats", name)

        def paced(name: str) -> int:
            return _word(controller, layout.offset("gcControllerState", name))

        (percent,) = struct.unpack_from(
            "<i", controller, layout.offset("gcControllerState", "gcPercent")
        )
        (fraction,) = struct.unpack_from("<d", data, at("gc_cpu_fraction"))
        cycles, forced = (_word(data, at(name), 4) for name in ("numgc", "numforcedgc"))
        last = at("pause_ns") + _WORD_BYTES * ((cycles + _PAUSES - 1) % _PAUSES)
        has_limit = layout.has("gcControllerState", "memoryLimit")
        limit = paced("memoryLimit") if has_limit else _NO_LIMIT
        return Collector(
            cycles=cycles,
            forced=forced,
            paused_ns=_word(data, at("pause_total_ns")),
            last_pause_ns=_word(data, last) if cycles else 0,
            last_unix_ns=_word(data, at("last_gc_unix")),
            percent=percent,
            limit=None if limit >= _NO_LIMIT else limit,
            goal=heap_goal(paced, layout),
            live=paced("heapLive"),
            marked=paced("heapMarked"),
            cpu_fraction=fraction if 0 <= fraction <= 1 else 0.0,
        )

    def _of_heap(self, name: str) -> int:
        return self._number(self._heap + self._layout.offset("mheap", name), _WORD_BYTES)

    def _number(self, address: int, size: int) -> int:
        return int.from_bytes(self._memory.read(address, size), "little")


def _word(data: bytes, offset: int, size: int = _WORD_BYTES) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _signed(value: int) -> int:
    """A 64-bit sum of parts, some of which may be negative, as a signed number."""
    value %= 1 << 64
    return value - (1 << 64) if value >= 1 << 63 else value
