"""A target's heap before its references are followed: spans, types, and the words of roots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.table import GoroutineTable
from ebpfprof.goruntime.heap.program_types import program_types
from ebpfprof.goruntime.plugins import plugin_modules
from ebpfprof.goruntime.references.object_types import UNKNOWN, ObjectTypes, Shapes
from ebpfprof.goruntime.references.pointed_types import PointedTypes
from ebpfprof.goruntime.references.roots import RootReader
from ebpfprof.goruntime.references.slots import Slots
from ebpfprof.goruntime.spans import all_spans
from ebpfprof.system.heap import keep_large_blocks
from symbolizer.codeanalysis.memory_globals import memory_globals
from symbolizer.locks.variable_types import VariableTypes

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget

    Numbers = npt.NDArray[np.int64]

_MAX_NAMES: Final = 1 << 16
SCHEDULER: Final = "the runtime's scheduler"
"""The root of all runtime.g, runtime.m and runtime.p."""


class Heap:
    """The slots, types and roots of a Go program, at about one moment.

    `recorded` are the first address of type descriptors and that behind the last one, for versions
    of Go that record types of objects. `root_types` are the types of `roots`, `scheduler` the slots
    of the scheduler's objects, with their type.
    """

    def __init__(self, go: GoTarget) -> None:
        """Read the target's memory. From now on this process keeps large blocks of its own.

        Raises TargetGone, UnreadableMemory or GoTableError (its code is unknown).
        """
        keep_large_blocks()
        self._go = go
        self.memory, layout, bias = go.target.memory, go.binary.layout, go.load_bias
        self.waits_before = self.waits()
        spans = all_spans(self.memory, layout, memory_globals(go.binary).heap + bias)
        self.slots = Slots(spans.rows)
        low, high = go.binary.types
        has_types = layout.has("mspan", "largeType")
        self.recorded = (low + bias, high + bias) if has_types else None
        descriptors = program_types(self.memory, go.binary, bias)
        shapes = Shapes(descriptors, VariableTypes(go.binary.elf), low + bias)
        self.types = ObjectTypes(shapes, layout)
        self._names: dict[int, str] = {}
        self.pointed = PointedTypes(self.types, self.memory, self._function_name)
        reader = RootReader(go, self.slots)
        self.words = reader.read()
        self.roots, self.goroutines = reader.roots, reader.goroutines
        self.unread_stacks, self.finalized = reader.unread_stacks, reader.finalized
        self.is_whole = not (
            self.slots.left_out
            or spans.corrupt
            or spans.beyond
            or reader.unread_stacks
            or reader.beyond
            or len(plugin_modules(go.target, go.binary, bias)) > len(go.plugins)
        )
        """Whether all roots and spans were read: not if a plugin's file could not be."""
        self.root_types = []
        for root in self.roots:
            shape = shapes.of_variable(root.name, root.address) if root.address else 0
            self.root_types.append(self.types.variable(shape) if shape else UNKNOWN)
        self.scheduler: list[tuple[Numbers, int]] = []
        for name, slots in reader.scheduler.items():
            known = descriptors.structs_named(name)
            kind = self.types.variable(known[0]) if len(known) == 1 else UNKNOWN
            self.scheduler.append((slots, kind))

    def waits(self) -> dict[int, int]:
        """What each goroutine does now, by its address, as Goroutine.wait. Raises TargetGone."""
        heads = GoroutineTable(self.memory, self._go.binary, self._go.load_bias).read()
        return dict(zip(heads.addresses.tolist(), heads.waits.tolist(), strict=True))

    def _function_name(self, address: int) -> str:
        if address not in self._names:
            if len(self._names) >= _MAX_NAMES:
                return ""
            pc = address - self._go.load_bias
            function = self._go.binary.function_at(pc) if pc > 0 else None
            self._names[address] = function.name if function else ""
        return self._names[address]
