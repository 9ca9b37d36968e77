"""All references of a target's heap, kept: for questions about what some of them keep alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ebpfprof.goruntime.references.graph import Graph
from ebpfprof.goruntime.references.heap import SCHEDULER, Heap
from ebpfprof.goruntime.references.object_types import UNKNOWN
from ebpfprof.goruntime.references.roots import RootKind
from ebpfprof.goruntime.references.search import Search

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget


class Scan:
    """What keeps the objects of a Go program alive, at about one moment."""

    def __init__(self, go: GoTarget) -> None:
        """Read the target's memory.

        Raises TargetGone, UnreadableMemory, GoTableError (its code is unknown) or HeapTooLarge.
        """
        heap = self.heap = Heap(go)
        self.slots, self.types = heap.slots, heap.types
        self.words, self.roots, self.root_types = heap.words, heap.roots, heap.root_types
        self.graph = Graph(heap.memory, self.slots, heap.recorded)
        self.search = Search(self.graph, self.types, heap.pointed)
        self.scheduler = np.concatenate([slots for slots, _ in heap.scheduler])
        self.kept_by_finalizers = np.zeros(0, np.int64)
        tree = self.search.tree
        nodes = [
            tree.root(root.name, kind)
            for root, kind in zip(heap.roots, heap.root_types, strict=True)
        ]
        # Many objects lead to the scheduler's: a timer to its processor, that to its thread.
        scheduler = tree.root(SCHEDULER, UNKNOWN)
        for slots, shape in heap.scheduler:
            self.search.reserve(slots, scheduler, shape)
        kinds = np.array([root.kind for root in heap.roots])
        for kind in RootKind:
            if kind is RootKind.RUNTIME:
                self.search.follow(self.scheduler)
            chosen = np.flatnonzero(kinds[heap.words.roots] == kind)
            self.search.add(heap.words, chosen, nodes, heap.root_types)
            if kind is RootKind.FINALIZER and len(heap.finalized):
                _, edges = self.graph.edges_of(heap.finalized)
                number = next(i for i, root in enumerate(heap.roots) if root.kind is kind)
                self.kept_by_finalizers = self.graph.targets[edges].astype(np.int64)
                self.search.add_slots(self.kept_by_finalizers, edges, nodes[number])
