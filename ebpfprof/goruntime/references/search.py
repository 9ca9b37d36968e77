"""Which objects are reached, by which path: breadth first, from the roots.

Each object belongs to the path that reached it first. Levels of many objects are done at once, with
numpy. Thin ones, such as those of a long list, cost numpy 0.3 ms each, whatever they have: they are
done one by one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.references.object_types import UNKNOWN, Ask, ReferenceStep
from ebpfprof.goruntime.references.path_tree import PathTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.references.graph import Graph
    from ebpfprof.goruntime.references.object_types import ObjectTypes
    from ebpfprof.goruntime.references.pointed_types import PointedTypes
    from ebpfprof.goruntime.references.roots import RootWords

    Numbers = npt.NDArray[np.int64]

THIN: Final = 96
"""A level of fewer objects is done one by one."""
_MANY_EDGES: Final = 8 * THIN
_BLOCK: Final = 1 << 17
_LOW: Final = (1 << 20) - 1
_MAX_KNOWN: Final = 1 << 18
_SHIFT: Final = 32
_UNREACHED: Final = -1
NO_EDGE: Final = (1 << 31) - 1
"""The reference to an object of the runtime that is taken as reached."""


class Search:
    """The objects that were reached, by slot.

    `node` is the place in `tree`, -1 for those that were not reached. `edge` is the reference by
    which each was reached first: an index of the graph's, or -1 less that of a word of a root.
    `type` is the number of its type.
    """

    def __init__(self, graph: Graph, types: ObjectTypes, pointed: PointedTypes) -> None:
        self._graph, self._slots, self._types = graph, graph.slots, types
        self._pointed = pointed
        count = self._slots.count
        self.tree = PathTree()
        self.node = np.full(count, _UNREACHED, np.int32)
        self.edge = np.zeros(count, np.int32)
        self.type = np.zeros(count, np.int32)
        self._periods: list[int] = []
        self._thin_level = ThinLevels(self, graph, types, self._pointed)

    def add(
        self, words: RootWords, chosen: Numbers, nodes: Sequence[int], types: Sequence[int]
    ) -> None:
        """Reach all that the chosen words of roots lead to; a place and a type for each root."""
        roots = words.roots[chosen]
        node = np.array(nodes, np.int64)[roots]
        kind = np.array(types, np.int64)[roots]
        level = self._reach(
            words.slots[chosen].astype(np.int64),
            -1 - chosen,
            node,
            kind,
            words.offsets[chosen],
            lambda kept: words.places[chosen[kept]],
            words.is_first[chosen],
        )
        self.follow(level)

    def reserve(self, slots: Numbers, node: int, kind: int) -> None:
        """Give objects of a type to a place, without what they refer to: see follow()."""
        self.node[slots] = node
        self.edge[slots] = NO_EDGE
        self.type[slots] = kind

    def add_slots(self, slots: Numbers, edges: Numbers, node: int) -> None:
        """Reach these slots by these references, as if from an unknown object of a root."""
        count = len(slots)
        level = self._reach(
            slots,
            edges,
            np.full(count, node, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            lambda kept: np.zeros(len(kept), np.uint64),
            np.ones(count, np.bool_),
        )
        self.follow(level)

    def follow(self, level: Numbers) -> None:
        """Reach all that these objects, which were reached, refer to."""
        while len(level):
            level = self._thin_level.follow(level) if len(level) < THIN else self.wide(level)

    def are_references(self) -> npt.NDArray[np.bool_]:
        """Which of the graph's references are pointers, as far as types tell."""
        count = len(self._graph.targets)
        are = np.ones(count, np.bool_)
        for begin in range(0, count, _BLOCK):
            edges = np.arange(begin, min(begin + _BLOCK, count))
            sources = self._graph.sources(edges)
            types = self.type[sources].astype(np.int64)
            chosen = np.flatnonzero(types != UNKNOWN)
            edges, sources, types = edges[chosen], sources[chosen], types[chosen]
            offsets = self._graph.offsets(edges) - self._graph.header_bytes(sources)
            steps, which = self._steps(types, self._relative(types, offsets))
            are[edges] = np.array([step.is_reference for step in steps], np.bool_)[which]
        return are

    def root_words(self, words: RootWords, types: Sequence[int]) -> npt.NDArray[np.bool_]:
        """The same of words of roots, by the type of each root."""
        kinds = np.array([*types, UNKNOWN], np.int64)[words.roots]
        steps, which = self._steps(kinds, self._relative(kinds, words.offsets))
        are: npt.NDArray[np.bool_] = np.array([step.is_reference for step in steps], np.bool_)[
            which
        ]
        return are

    def wide(self, level: Numbers) -> Numbers:
        """Reach what the objects of a level refer to; returns these, the next level."""
        new = []
        first = self._graph.first
        begin, end = first[level].astype(np.int64), first[level.astype(np.int64) + 1]
        for sources, edges in _blocks(level, begin, end - begin):
            targets = self._graph.targets[edges]
            rows = np.flatnonzero(self.node[targets] == _UNREACHED)
            sources, edges = sources[rows], edges[rows]
            offsets = self._graph.offsets(edges)
            new.append(
                self._reach(
                    targets[rows].astype(np.int64),
                    edges,
                    self.node[sources].astype(np.int64),
                    self.type[sources].astype(np.int64),
                    offsets - self._graph.header_bytes(sources),
                    partial(self._places, sources, offsets),
                    self._graph.are_first(edges),
                )
            )
        return np.concatenate(new) if new else np.zeros(0, np.int64)

    def _places(self, sources: Numbers, offsets: Numbers, kept: Numbers) -> npt.NDArray[np.uint64]:
        """The addresses of some references, by who has them and where."""
        starts = self._slots.addresses(sources[kept])
        places: npt.NDArray[np.uint64] = starts + offsets[kept].astype(np.uint64)
        return places

    def _reach(
        self,
        targets: Numbers,
        edges: Numbers,
        nodes: Numbers,
        types: Numbers,
        offsets: Numbers,
        places: Callable[[Numbers], npt.NDArray[np.uint64]],
        is_first: npt.NDArray[np.bool_],
    ) -> Numbers:
        """Give each target that is not yet reached to the first reference that leads to it.

        Returns these targets. `types` are those of the objects that have the references, `nodes`
        their places in the tree; `places` returns the addresses of some of the references.
        """
        offsets = self._relative(types, offsets)
        reached = []
        left = np.arange(len(targets))
        while len(left):
            left = left[self.node[targets[left]] == _UNREACHED]
            # Of several references to one target, the first one is written last.
            reverse = left[::-1]
            self.edge[targets[reverse]] = edges[reverse]
            chosen = left[self.edge[targets[left]] == edges[left]]
            steps, which = self._steps(types[chosen], offsets[chosen])
            are_pointers = np.array([step.is_reference for step in steps], np.bool_)
            if are_pointers.all():
                self._take(targets, nodes, places, is_first, chosen, steps, which)
                reached.append(targets[chosen])
                break
            is_pointer = are_pointers[which]
            kept = chosen[is_pointer]
            self._take(targets, nodes, places, is_first, kept, steps, which[is_pointer])
            reached.append(targets[kept])
            left = np.setdiff1d(left, chosen, assume_unique=True)
        return np.concatenate(reached) if reached else np.zeros(0, np.int64)

    def _take(
        self,
        targets: Numbers,
        nodes: Numbers,
        places: Callable[[Numbers], npt.NDArray[np.uint64]],
        is_first: npt.NDArray[np.bool_],
        chosen: Numbers,
        steps: list[ReferenceStep],
        which: Numbers,
    ) -> None:
        """Give the chosen targets their types and places in the tree, by the steps to them."""
        if not len(chosen):
            return
        targets = targets[chosen]
        kinds = np.array([step.type for step in steps], np.int64)[which]
        asks = np.array([step.ask for step in steps], np.int64)
        for ask in np.unique(asks).tolist():
            if ask != Ask.NOTHING:
                rows = np.flatnonzero(asks[which] == ask)
                addresses = self._slots.addresses(targets[rows])
                kinds[rows] = self._pointed.asked(
                    Ask(ask), kinds[rows], places(chosen[rows]), addresses
                )
        kinds = self._fitted(kinds, is_first[chosen], targets)
        self.type[targets] = kinds
        # What differs of node, step and type: few.
        keys, inverse = different((nodes[chosen] << 40) | (which << 20) | kinds)
        below = [
            self.tree.below(key >> 40, steps[key >> 20 & _LOW]._replace(type=key & _LOW))
            for key in keys.tolist()
        ]
        self.node[targets] = np.array(below, np.int32)[inverse]

    def _relative(self, types: Numbers, offsets: Numbers) -> Numbers:
        """The offsets in one of the equal parts that the objects consist of."""
        for number in range(len(self._periods), len(self._types)):
            self._periods.append(self._types.period(number))
        periods = np.array(self._periods, np.int64)[types]
        return np.where(periods > 0, offsets % np.maximum(periods, 1), offsets)

    def _steps(self, types: Numbers, offsets: Numbers) -> tuple[list[ReferenceStep], Numbers]:
        """The references of objects of these types at these offsets: the different ones."""
        # Of unknown objects, it does not matter where.
        offsets = np.where(types == UNKNOWN, 0, np.minimum(offsets, (1 << _SHIFT) - 1))
        keys, which = different((types << _SHIFT) | offsets)
        steps = [
            self._types.step(key >> _SHIFT, key & ((1 << _SHIFT) - 1)) for key in keys.tolist()
        ]
        return steps, which

    def _fitted(self, kinds: Numbers, is_first: npt.NDArray[np.bool_], targets: Numbers) -> Numbers:
        """The types, if such objects can have them; those that the heap records if any."""
        sizes = np.minimum(self._slots.size_number[self._slots.span[targets]], _LOW)
        headers = self._graph.type_numbers[targets].astype(np.int64)
        keys, inverse = different(
            (kinds << 43) | (headers << 22) | (sizes.astype(np.int64) << 1) | is_first
        )
        fitted = [
            self.fitted(
                key >> 43,
                int(self._slots.different_sizes[key >> 1 & _LOW]),
                key & 1,
                key >> 22 & _LOW,
            )
            for key in keys.tolist()
        ]
        fitting: Numbers = np.array(fitted, np.int64)[inverse]
        return fitting

    def fitted(self, kind: int, size: int, is_first: int, header: int) -> int:
        """The type of an object in a slot of `size` bytes, to which a pointer of a type leads.

        `header` is the number of the type that the heap records, which is exact.
        """
        recorded = self._graph.type_addresses[header]
        return self._pointed.fitted(kind, size, recorded, is_first=bool(is_first))


class ThinLevels:
    """Levels with few objects, one by one."""

    def __init__(
        self,
        search: Search,
        graph: Graph,
        types: ObjectTypes,
        pointed: PointedTypes,
    ) -> None:
        self._search, self._graph, self._types = search, graph, types
        self._pointed = pointed
        # Scalars of memory views are read faster than those of arrays.
        self._first, self._targets = graph.first.data, graph.targets.data
        self._headers = graph.type_numbers.data
        self._node, self._edge, self._type = search.node.data, search.edge.data, search.type.data
        self._offsets = graph.offset_view
        self._span = graph.slots.span.data
        self._firsts = graph.slots.first.tolist()
        self._sizes = graph.slots.sizes.tolist()
        self._starts = graph.slots.starts.tolist()
        self._known: dict[tuple[int, ...], tuple[int, int]] = {}
        self._answers: dict[tuple[int, ...], tuple[int, int]] = {}

    def follow(self, level: Numbers) -> Numbers:
        """Reach what a thin level leads to, and so on, until a level has many objects."""
        first, targets, node = self._first, self._targets, self._node
        kinds, headers, spans = self._type, self._headers, self._span
        offsets, sizes, known = self._offsets, self._sizes, self._known
        new: list[int] = level.tolist()
        while new and len(new) < THIN:
            if len(new) == 1:  # a list: that is most of them
                references = first[new[0] + 1] - first[new[0]]
            else:
                references = sum([first[slot + 1] - first[slot] for slot in new])
            if references > _MANY_EDGES:
                return self._search.wide(np.array(new, np.int64))
            old, new = new, []
            for source in old:
                for edge in range(first[source], first[source + 1]):
                    target = targets[edge]
                    if node[target] != _UNREACHED:
                        continue
                    key = (
                        node[source],
                        kinds[source],
                        offsets[edge],
                        spans[source] if headers[source] else 0,
                        sizes[spans[target]],
                        headers[target],
                    )
                    answer = known.get(key)
                    if answer is None:
                        answer = self._answer(key, source, edge, target)
                        if answer is None:
                            continue
                    kinds[target], node[target] = answer
                    self._edge[target] = edge
                    new.append(target)
        return np.array(new, np.int64)

    def _answer(
        self, key: tuple[int, ...], source: int, edge: int, target: int
    ) -> tuple[int, int] | None:
        """The type of a target, and its place in the tree; None if a number is no reference."""
        offset, is_first = self._graph.one(edge)
        kind = self._type[source]
        size = self._sizes[self._span[target]]
        relative = 0
        if kind != UNKNOWN:
            relative = offset - self._graph.header_of(self._sizes[self._span[source]])
            if period := self._types.period(kind):
                relative %= period
        step = self._types.step(kind, relative)
        if not step.is_reference:
            return None
        to = step.type
        if step.ask is not Ask.NOTHING:
            place = self._address(source) + offset
            to = self._pointed.asked_one(step, place, self._address(target))
        asked = (*key, to)
        answer = self._answers.get(asked)
        if answer is None:
            to = self._search.fitted(to, size, is_first, self._headers[target])
            below = self._search.tree.below(self._node[source], step._replace(type=to))
            if len(self._answers) > _MAX_KNOWN:
                self._answers.clear()
                self._known.clear()
            answer = self._answers[asked] = to, below
        if step.ask is Ask.NOTHING:
            self._known[key] = answer
        return answer

    def _address(self, slot: int) -> int:
        span = self._span[slot]
        address: int = self._starts[span] + (slot - self._firsts[span]) * self._sizes[span]
        return address


def different(keys: Numbers) -> tuple[Numbers, Numbers]:
    """The different keys, in order, and the index of each among them; fast if there are few."""
    if len(keys) and (keys == keys[0]).all():
        return keys[:1], np.zeros(len(keys), np.int64)
    unique = np.unique(keys)
    return unique, np.searchsorted(unique, keys).astype(np.int64)


def _blocks(level: Numbers, begin: Numbers, counts: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """The references of a level's objects, in parts of limited size: who has each, and which."""
    ends = np.cumsum(counts)
    first = 0
    while first < len(level):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + _BLOCK, side="right")))
        if last == first + 1:  # one object may have many
            for low in range(0, int(counts[first]), _BLOCK):
                high = min(low + _BLOCK, int(counts[first]))
                edges = np.arange(low, high) + begin[first]
                yield np.full(len(edges), level[first]), edges
        else:
            part = slice(first, last)
            sources = np.repeat(level[part], counts[part])
            starts = np.repeat(begin[part] - (ends[part] - counts[part] - done), counts[part])
            yield sources, np.arange(len(sources)) + starts
        first = last
