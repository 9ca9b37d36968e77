"""Looks at the memory of one process for what only grows: by stack, or by type and size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ebpfprof.console.text import printable
from ebpfprof.export.tables.heap_growth import MemoryPlace
from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, require_profile
from ebpfprof.goruntime.heap.live_memory import LiveMemoryReader
from ebpfprof.profile.growth import Growing, Growth
from ebpfprof.profile.heap_growth import in_use
from ebpfprof.profilers.heap import buckets
from ebpfprof.profilers.heap.kind import HEAP
from ebpfprof.profilers.heap.stacks import HeapStacks
from symbolizer.codeanalysis.heap_globals import heap_globals
from symbolizer.codeanalysis.memory_globals import memory_globals

if TYPE_CHECKING:
    from ebpfprof.process.memory import Memory
    from ebpfprof.process.process import Target
    from symbolizer import GoBinary


class _Looks:
    """What was seen so far: `in_use` bytes in all, and what of it only grows."""

    def __init__(self) -> None:
        self._growth = Growth[MemoryPlace]()
        self._collections = -1
        self.growing: list[Growing[MemoryPlace]] = []
        self.in_use = 0

    @property
    def looks(self) -> int:
        """How many collections were looked at."""
        return self._growth.looks

    def is_new(self, collections: int) -> bool:
        """Whether there was a collection since the last look that found one."""
        is_new = collections not in (0, self._collections)
        self._collections = collections
        return is_new

    def add(self, found: Mapping[MemoryPlace, tuple[int, float]], in_use: int, now_ns: int) -> None:
        """Add what a look after another collection has found."""
        self.in_use, self.growing = in_use, self._growth.add(found, now_ns)


class StackGrowth(_Looks):
    """By the stacks that a program's own memory profile has."""

    def __init__(self, target: Target, binary: GoBinary, memory: Memory) -> None:
        """Raises TargetGone, UnsupportedTarget (there is no such profile) or GoTableError."""
        super().__init__()
        bias = target.load_bias(binary.elf.entry)
        self._buckets = HeapBuckets(memory, binary.layout, heap_globals(binary), bias)
        require_profile(target, self._buckets)
        mappings = target.executable_mappings(binary.elf.build_id)
        self._stacks = HeapStacks(binary, bias, mappings)

    def look(self, now_ns: int) -> None:
        """Look now. Raises TargetGone, UnreadableMemory or GoTableError."""
        counts = self._buckets.read()
        if not self.is_new(counts.cycle if counts.is_collected else 0):
            return
        samples = list(buckets.samples(counts, self._stacks, fresh=False))
        profile = HEAP.make_profile(
            samples, (), period=counts.rate, time_ns=time.time_ns(), duration_ns=0
        )
        found = {MemoryPlace(stack): number for stack, number in in_use(profile).items()}
        self.add(found, sum(sample.values[-1] for sample in samples), now_ns)


class TypeGrowth(_Looks):
    """By type and size of objects, of any program; exact."""

    def __init__(self, target: Target, binary: GoBinary, memory: Memory) -> None:
        """Raises TargetGone, UnreadableMemory or GoTableError."""
        super().__init__()
        bias = target.load_bias(binary.elf.entry)
        self._live = LiveMemoryReader(memory, binary, memory_globals(binary), bias)

    def look(self, now_ns: int) -> None:
        """Look now. Raises TargetGone or UnreadableMemory."""
        if not self.is_new(self._live.collections()):
            return
        live = self._live.read()
        found = {MemoryPlace((), printable(name)): (used, 0.0) for name, used in live.types.items()}
        for size, used in live.sizes.items():
            name = f"objects of {size} bytes, of any type" if size else "large objects, of any type"
            found[MemoryPlace((), name)] = (used, 0.0)
        self.add(found, live.in_use, now_ns)
