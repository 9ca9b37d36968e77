"""One scan of a target's references: the graph, the roots, and what reached each object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.table import GoroutineTable
from ebpfprof.goruntime.heap.program_types import program_types
from ebpfprof.goruntime.plugins import plugin_modules
from ebpfprof.goruntime.references.graph import Graph
from ebpfprof.goruntime.references.object_types import UNKNOWN, ObjectTypes, Shapes
from ebpfprof.goruntime.references.roots import RootKind, RootReader
from ebpfprof.goruntime.references.search import Search
from ebpfprof.goruntime.references.slots import Slots
from ebpfprof.goruntime.spans import all_spans
from ebpfprof.system.heap import keep_large_blocks
from symbolizer.codeanalysis.memory_globals import memory_globals
from symbolizer.locks.variable_types import VariableTypes

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget

_MAX_NAMES: Final = 1 << 16


class Scan:
    """What keeps the objects of a Go program alive, at about one moment."""

    def __init__(self, go: GoTarget) -> None:
        """Read the target's memory. From now on this process keeps large blocks of its own.

        Raises TargetGone, UnreadableMemory or GoTableError (its code is unknown).
        """
        keep_large_blocks()
        self._go = go
        memory, layout, bias = go.target.memory, go.binary.layout, go.load_bias
        heads = GoroutineTable(memory, go.binary, bias).read()
        self.waits_before = dict(zip(heads.addresses.tolist(), heads.waits.tolist(), strict=True))
        """What each goroutine did before the heap was read, as Goroutine.wait."""
        spans = all_spans(memory, layout, memory_globals(go.binary).heap + bias)
        self.slots = Slots(spans.rows)
        low, high = go.binary.types
        has_types = layout.has("mspan", "largeType")
        self.graph = Graph(memory, self.slots, (low + bias, high + bias) if has_types else None)
        descriptors = program_types(memory, go.binary, bias)
        variables = VariableTypes(go.binary.elf)
        shapes = Shapes(descriptors, variables, low + bias)
        self.types = ObjectTypes(shapes, layout)
        reader = RootReader(go, self.slots)
        self.words = reader.read()
        self.roots = reader.roots
        self.unread_stacks = reader.unread_stacks
        self.goroutines = reader.goroutines
        self.is_whole = not (
            self.slots.left_out
            or self.graph.unread
            or spans.corrupt
            or spans.beyond
            or reader.unread_stacks
            or reader.beyond
            or len(plugin_modules(go.target, go.binary, bias)) > len(go.plugins)
        )
        """Whether all roots and references were read: not if a plugin's file could not be."""
        self._names: dict[int, str] = {}
        self.search = Search(self.graph, self.types, memory, self._function_name)
        self.scheduler = np.concatenate(list(reader.scheduler.values()))
        self.kept_by_finalizers = np.zeros(0, np.int64)
        nodes, types = [], []
        for root in self.roots:
            shape = shapes.of_variable(root.name, root.address) if root.address else 0
            number = self.types.variable(shape) if shape else UNKNOWN
            types.append(number)
            nodes.append(self.search.tree.root(root.name, number))
        # Many objects lead to the scheduler's: a timer to its processor, that to its thread.
        scheduler = self.search.tree.root("the runtime's scheduler", UNKNOWN)
        for name, slots in reader.scheduler.items():
            known = descriptors.structs_named(name)
            shape = self.types.variable(known[0]) if len(known) == 1 else UNKNOWN
            self.search.reserve(slots, scheduler, shape)
        kinds = np.array([root.kind for root in self.roots])
        for kind in RootKind:
            if kind is RootKind.RUNTIME:
                self.search.follow(self.scheduler)
            chosen = np.flatnonzero(kinds[self.words.roots] == kind)
            self.search.add(self.words, chosen, nodes, types)
            if kind is RootKind.FINALIZER and len(reader.finalized):
                _, edges = self.graph.edges_of(reader.finalized)
                number = next(i for i, root in enumerate(self.roots) if root.kind is kind)
                self.kept_by_finalizers = self.graph.targets[edges].astype(np.int64)
                self.search.add_slots(self.kept_by_finalizers, edges, nodes[number])
        self.root_types = types

    def _function_name(self, address: int) -> str:
        if address not in self._names:
            if len(self._names) >= _MAX_NAMES:
                return ""
            pc = address - self._go.load_bias
            function = self._go.binary.function_at(pc) if pc > 0 else None
            self._names[address] = function.name if function else ""
        return self._names[address]
