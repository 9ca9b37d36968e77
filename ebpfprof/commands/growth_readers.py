"""Finds memory of a process that only grows: by stack, or by type and size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ebpfprof.console.text import printable
from ebpfprof.export.references import flat
from ebpfprof.export.tables.heap_growth import MemoryPlace
from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, require_profile
from ebpfprof.goruntime.heap.live_memory import LiveMemoryReader
from ebpfprof.goruntime.references.reader import ReferenceReader
from ebpfprof.profile.growth import Growing, Growth
from ebpfprof.profile.heap_growth import in_use
from ebpfprof.profilers.heap import buckets
from ebpfprof.profilers.heap.heap_stacks import HeapStacks
from ebpfprof.profilers.heap.kind import HEAP
from symbolizer.codeanalysis.heap_globals import heap_globals
from symbolizer.codeanalysis.memory_globals import memory_globals

if TYPE_CHECKING:
    from ebpfprof.goruntime.open_processes import OpenProcess
    from ebpfprof.goruntime.process import GoTarget


class _GrowthReader:
    """The result of the samples so far: `in_use` bytes in total, and the places that only grow."""

    def __init__(self) -> None:
        self._growth = Growth[MemoryPlace]()
        self._collections = -1
        self.growing: list[Growing[MemoryPlace]] = []
        self.in_use = 0

    @property
    def samples(self) -> int:
        """How many garbage collections were sampled."""
        return self._growth.samples

    def is_new(self, collections: int) -> bool:
        """Whether there was a garbage collection since the last call."""
        is_new = collections not in (0, self._collections)
        self._collections = collections
        return is_new

    def add(
        self, bytes_of: Mapping[MemoryPlace, tuple[int, float]], in_use: int, now_ns: int
    ) -> None:
        """Add a sample that was taken after another collection."""
        self.in_use, self.growing = in_use, self._growth.add(bytes_of, now_ns)


class StackGrowth(_GrowthReader):
    """By the stacks in the program's own memory profile."""

    def __init__(self, process: OpenProcess) -> None:
        """Raises TargetGone, UnsupportedTarget (without such a profile) or GoTableError."""
        super().__init__()
        target, binary, bias = process.target, process.binary(), process.load_bias()
        self._buckets = HeapBuckets(target.memory, binary.layout, heap_globals(binary), bias)
        require_profile(target, self._buckets)
        self._stacks = HeapStacks(binary, bias, process.mappings())

    def sample(self, now_ns: int) -> None:
        """Take a sample. Raises TargetGone, UnreadableMemory or GoTableError."""
        counts = self._buckets.read()
        if not self.is_new(counts.cycle if counts.is_collected else 0):
            return
        samples = list(buckets.samples(counts, self._stacks, fresh=False))
        profile = HEAP.make_profile(
            samples, (), period=counts.rate, time_ns=time.time_ns(), duration_ns=0
        )
        places = {MemoryPlace(stack): number for stack, number in in_use(profile).items()}
        self.add(places, sum(sample.values[-1] for sample in samples), now_ns)


class TypeGrowth(_GrowthReader):
    """By type and size of objects, for any program; exact."""

    def __init__(self, process: OpenProcess) -> None:
        """Raises TargetGone, UnreadableMemory or GoTableError."""
        super().__init__()
        memory, binary = process.target.memory, process.binary()
        globals_ = memory_globals(binary)
        self._live = LiveMemoryReader(memory, binary, globals_, process.load_bias())

    def sample(self, now_ns: int) -> None:
        """Take a sample. Raises TargetGone or UnreadableMemory."""
        if not self.is_new(self._live.collections()):
            return
        live = self._live.read()
        places = {
            MemoryPlace((), printable(name)): (used, 0.0) for name, used in live.types.items()
        }
        for size, used in live.sizes.items():
            name = f"objects of {size} bytes, of any type" if size else "large objects, of any type"
            places[MemoryPlace((), name)] = (used, 0.0)
        self.add(places, live.in_use, now_ns)


class ReferenceGrowth(_GrowthReader):
    """By the path of references that reaches objects first, for any program."""

    def __init__(self, go: GoTarget) -> None:
        """Raises TargetGone, UnreadableMemory or GoTableError."""
        super().__init__()
        self._go = go
        globals_ = memory_globals(go.binary)
        self._live = LiveMemoryReader(go.target.memory, go.binary, globals_, go.load_bias)

    def sample(self, now_ns: int) -> None:
        """Take a sample. Raises TargetGone, UnreadableMemory or GoTableError."""
        if not self.is_new(self._live.collections()):
            return
        references = ReferenceReader(self._go).references()
        places: dict[MemoryPlace, tuple[int, float]] = {}
        for names, path in flat(references):
            name = MemoryPlace((), printable(" > ".join(names)))
            places[name] = (places.get(name, (0, 0.0))[0] + path.used, 0.0)
        self.add(places, references.used, now_ns)
