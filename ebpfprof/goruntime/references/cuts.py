"""What would be freed if references were cut: exact, by what is reached without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.references.graph import Graph

    Mask = npt.NDArray[np.bool_]
    Numbers = npt.NDArray[np.int64]

_THIN: Final = 64  # slots of a level
_MANY: Final = 4096  # references of one slot


class Cuts:
    """Answers questions about one graph.

    `are_references` says which of the graph's edges count; `roots` are the slots to which words of
    roots lead, a slot for each word; `reached` are all slots that are reached.
    """

    def __init__(self, graph: Graph, are_references: Mask, roots: Numbers, reached: Mask) -> None:
        self._graph, self._counts = graph, are_references
        self._roots, self._reached = roots, reached
        # Scalars of memory views are read faster than those of arrays.
        self._first, self._targets = graph.first.data, graph.targets.data
        self._counts_view = are_references.data

    def freed_without_words(self, words: Numbers) -> Mask:
        """Which slots would be freed if these words of roots were nil."""
        is_left = np.ones(len(self._roots), np.bool_)
        is_left[words] = False
        return self._freed(self._roots[words], self._roots[is_left], np.zeros(0, np.int64))

    def freed_without_edges(self, edges: Numbers) -> Mask:
        """Which slots would be freed if these references were nil."""
        return self._freed(self._graph.targets[edges].astype(np.int64), self._roots, edges)

    def freed_without_slots(self, slots: Numbers) -> Mask:
        """Which slots would be freed if nothing led to these: they, and what only they keep."""
        below = self.below(slots, None)
        kept = self._kept(below, self._roots, np.zeros(0, np.int64), barred=slots)
        return below & ~kept & self._reached

    def _freed(self, slots: Numbers, roots: Numbers, cut: Numbers) -> Mask:
        below = self.below(slots, None)
        return below & ~self._kept(below, roots, cut, np.zeros(0, np.int64)) & self._reached

    def _kept(self, below: Mask, roots: Numbers, cut: Numbers, barred: Numbers) -> Mask:
        """Which slots of `below` are reached without these references and slots."""
        graph = self._graph
        # References from what is reached, but not below.
        outside = np.flatnonzero(self._reached & ~below)
        counts = graph.first[outside + 1] - graph.first[outside]
        outside = outside[counts > 0]
        seeds = [roots[below[roots]]]
        for begin in range(0, len(outside), 1 << 20):
            _, edges = graph.edges_of(outside[begin : begin + (1 << 20)])
            edges = edges[self._counts[edges]]
            seeds.append(self._inside(edges, below, cut))
        allowed = below.copy()
        allowed[barred] = False
        start = np.unique(np.concatenate(seeds))
        return self.below(start[allowed[start]], allowed, cut)

    def _inside(self, edges: Numbers, below: Mask, cut: Numbers) -> Numbers:
        if len(cut):
            edges = edges[~np.isin(edges, cut)]
        targets = self._graph.targets[edges].astype(np.int64)
        return np.unique(targets[below[targets]])

    def below(self, slots: Numbers, allowed: Mask | None, cut: Numbers | None = None) -> Mask:
        """All slots that are reached from these, they included; only those that are allowed."""
        seen = np.zeros(self._graph.slots.count, np.bool_)
        is_open = np.ones(len(seen), np.bool_) if allowed is None else allowed.copy()
        level = np.unique(slots)
        seen[level] = True
        is_open[level] = False
        gone = frozenset(cut.tolist()) if cut is not None else frozenset()
        while len(level):
            if len(level) < _THIN:
                level = self._thin(level, seen, is_open, gone)
                continue
            _, edges = self._graph.edges_of(level)
            edges = edges[self._counts[edges]]
            if cut is not None and len(cut):
                edges = edges[~np.isin(edges, cut)]
            targets = self._graph.targets[edges]
            level = np.unique(targets[is_open[targets]]).astype(np.int64)
            seen[level] = True
            is_open[level] = False
        return seen

    def _thin(self, level: Numbers, seen: Mask, is_open: Mask, gone: frozenset[int]) -> Numbers:
        """Levels of few slots, one by one, until one has many."""
        first, targets, counts = self._first, self._targets, self._counts_view
        seen_view, open_view = seen.data, is_open.data
        new: list[int] = level.tolist()
        while new and len(new) < _THIN:
            old, new = new, []
            for slot in old:
                if first[slot + 1] - first[slot] > _MANY:
                    new += self._many(slot, seen, is_open, gone)
                    continue
                for edge in range(first[slot], first[slot + 1]):
                    target = targets[edge]
                    if open_view[target] and counts[edge] and edge not in gone:
                        seen_view[target], open_view[target] = True, False
                        new.append(target)
        return np.array(new, np.int64)

    def _many(self, slot: int, seen: Mask, is_open: Mask, gone: frozenset[int]) -> list[int]:
        """The same for one slot with many references."""
        edges = np.arange(self._first[slot], self._first[slot + 1])
        edges = edges[self._counts[edges] & is_open[self._graph.targets[edges]]]
        if gone:
            edges = edges[~np.isin(edges, list(gone))]
        targets = np.unique(self._graph.targets[edges])
        seen[targets], is_open[targets] = True, False
        new: list[int] = targets.tolist()
        return new
