"""Which objects are reached, by which path: breadth first, from the roots.

Each object belongs to the path that reached it first. Levels of many objects are done at once, with
numpy. Thin ones, such as those of a long list, cost numpy 0.3 ms each, whatever they have: they are
done one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.references.object_types import PARTS, UNKNOWN, Ask, Form, Step
from ebpfprof.goruntime.references.path_tree import PathTree
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.references.graph import Graph
    from ebpfprof.goruntime.references.object_types import ObjectTypes
    from ebpfprof.goruntime.references.roots import RootWords
    from ebpfprof.process.memory import Memory

    Numbers = npt.NDArray[np.int64]

THIN: Final = 96
"""A level of fewer objects is done one by one."""
_MANY_EDGES: Final = 8 * THIN
_BLOCK: Final = 1 << 22
_MAX_KNOWN: Final = 1 << 18
_END: Final = 1 << 47  # of addresses of a process
_WORD: Final = np.dtype("<u8")
_WORD_BYTES: Final = 8
_ITAB_TYPE_AT: Final = np.uint64(8)
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

    def __init__(
        self,
        graph: Graph,
        types: ObjectTypes,
        memory: Memory,
        function_name: Callable[[int], str],
    ) -> None:
        """`function_name` names the function that begins at an address; "" for none."""
        self._graph, self._slots, self._types = graph, graph.slots, types
        self._memory, self._function_name = memory, function_name
        count = self._slots.count
        self.tree = PathTree()
        self.node = np.full(count, _UNREACHED, np.int32)
        self.edge = np.zeros(count, np.int32)
        self.type = np.zeros(count, np.int32)
        self._periods: list[int] = []
        self._recorded: dict[tuple[int, int], int] = {}
        self._thin_level = ThinLevels(self, graph, types, memory, function_name)

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
            words.places[chosen],
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
            np.zeros(count, np.uint64),
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
        which, edges = self._graph.edges_of(level)
        targets = self._graph.targets[edges]
        is_new = self.node[targets] == _UNREACHED
        which, edges, targets = which[is_new], edges[is_new], targets[is_new]
        sources = level[which]
        offsets = self._graph.offsets(edges)
        return self._reach(
            targets.astype(np.int64),
            edges,
            self.node[sources].astype(np.int64),
            self.type[sources].astype(np.int64),
            offsets - self._graph.header_bytes(sources),
            self._slots.addresses(sources) + offsets.astype(np.uint64),
            self._graph.are_first(edges),
        )

    def _reach(
        self,
        targets: Numbers,
        edges: Numbers,
        nodes: Numbers,
        types: Numbers,
        offsets: Numbers,
        places: npt.NDArray[np.uint64],
        is_first: npt.NDArray[np.bool_],
    ) -> Numbers:
        """Give each target that is not yet reached to the first reference that leads to it.

        Returns these targets. `types` are those of the objects that have the references, `nodes`
        their places in the tree.
        """
        steps, which = self._steps(types, self._relative(types, offsets))
        are_references = np.array([step.is_reference for step in steps], np.bool_)[which]
        chosen = np.flatnonzero((self.node[targets] == _UNREACHED) & are_references)
        # Of several references to one target, the first one is written last.
        reverse = chosen[::-1]
        self.edge[targets[reverse]] = edges[reverse]
        chosen = chosen[self.edge[targets[chosen]] == edges[chosen]]
        if not len(chosen):
            return np.zeros(0, np.int64)
        targets, nodes, which = targets[chosen], nodes[chosen], which[chosen]
        places, is_first = places[chosen], is_first[chosen]
        sizes = self._slots.bytes_of(targets)
        kinds = np.array([step.type for step in steps], np.int64)[which]
        asks = np.array([step.ask for step in steps], np.int64)[which]
        for ask in np.unique(asks).tolist():
            if ask != Ask.NOTHING:
                rows = np.flatnonzero(asks == ask)
                kinds[rows] = self._asked(Ask(ask), kinds[rows], places[rows], targets[rows])
        kinds = self._fitted(kinds, sizes, is_first, targets)
        self.type[targets] = kinds
        # What differs of node, step and type: few.
        keys = np.stack([nodes, which, kinds], axis=1)
        rows_of, inverse = _unique(keys)
        below = [
            self.tree.below(node, steps[step]._replace(type=kind))
            for node, step, kind in rows_of.tolist()
        ]
        self.node[targets] = np.array(below, np.int32)[inverse]
        return targets

    def _relative(self, types: Numbers, offsets: Numbers) -> Numbers:
        """The offsets in one of the equal parts that the objects consist of."""
        for number in range(len(self._periods), len(self._types)):
            self._periods.append(self._types.period(number))
        periods = np.array(self._periods, np.int64)[types]
        return np.where(periods > 0, offsets % np.maximum(periods, 1), offsets)

    def _steps(self, types: Numbers, offsets: Numbers) -> tuple[list[Step], Numbers]:
        """The references of objects of these types at these offsets: the different ones."""
        # Of unknown objects, it does not matter where.
        offsets = np.where(types == UNKNOWN, 0, offsets)
        keys, which = np.unique((types << _SHIFT) | offsets, return_inverse=True)
        steps = [
            self._types.step(key >> _SHIFT, key & ((1 << _SHIFT) - 1)) for key in keys.tolist()
        ]
        return steps, which

    def _asked(
        self, ask: Ask, kinds: Numbers, places: npt.NDArray[np.uint64], targets: Numbers
    ) -> Numbers:
        """The types that references lead to, by what the target's memory says."""
        match ask:
            case Ask.TYPE_BEFORE | Ask.ITAB_BEFORE:
                words = self._memory.read_records(places - np.uint64(_WORD_BYTES), _WORD)
                if ask is Ask.ITAB_BEFORE:
                    itabs, which = np.unique(words, return_inverse=True)
                    words = self._memory.read_records(itabs + _ITAB_TYPE_AT, _WORD)[which]
                return self._dynamic(words, targets)
            case Ask.TABLES_BEHIND:
                words = self._memory.read_records(places + np.uint64(_WORD_BYTES), _WORD)
                return np.where(words == 0, self._only_groups(kinds), kinds)
        return self._closures(targets)

    def _only_groups(self, kinds: Numbers) -> Numbers:
        unique, which = np.unique(kinds, return_inverse=True)
        return np.array([self._types.only_group(kind) for kind in unique.tolist()], np.int64)[which]

    def _dynamic(self, words: npt.NDArray[np.uint64], targets: Numbers) -> Numbers:
        unique, which = np.unique(words, return_inverse=True)
        kinds, functions = [], []
        for word in unique.tolist():
            kind, is_function = (
                self._types.of_dynamic(word) if 0 < word < _END else (UNKNOWN, False)
            )
            kinds.append(kind)
            functions.append(is_function)
        dynamic: Numbers = np.array(kinds, np.int64)[which]
        are_functions = np.flatnonzero(np.array(functions, np.bool_)[which])
        if len(are_functions):
            dynamic[are_functions] = self._closures(targets[are_functions])
        return dynamic

    def _closures(self, targets: Numbers) -> Numbers:
        """The types of closures: each has its function's name."""
        words = self._memory.read_records(self._slots.addresses(targets), _WORD)
        unique, which = np.unique(words, return_inverse=True)
        return np.array(
            [
                self._types.number(Form.CLOSURE, name=self._function_name(word))
                for word in unique.tolist()
            ],
            np.int64,
        )[which]

    def _fitted(
        self, kinds: Numbers, sizes: Numbers, is_first: npt.NDArray[np.bool_], targets: Numbers
    ) -> Numbers:
        """The types, if objects of that size can have them; those that the heap records if any."""
        keys = np.stack([kinds, sizes, is_first, self._graph.type_numbers[targets]], axis=1)
        unique, inverse = _unique(keys)
        fitted = [self.fitted(*row) for row in unique.tolist()]
        fitting: Numbers = np.array(fitted, np.int64)[inverse]
        return fitting

    def fitted(self, kind: int, size: int, is_first: int, header: int) -> int:
        """The type of an object in a slot of `size` bytes, to which a pointer of a type leads.

        `header` is the number of the type that the heap records, which is exact.
        """
        if header and self._types[kind].form not in PARTS:
            key = header, size
            if key not in self._recorded:
                address = self._graph.type_addresses[header]
                self._recorded[key] = self._types.of_header(address, size)
            if recorded := self._recorded[key]:
                return recorded
        return self._types.fitting(kind, size, is_first=bool(is_first))


class ThinLevels:
    """Levels with few objects, one by one."""

    def __init__(
        self,
        search: Search,
        graph: Graph,
        types: ObjectTypes,
        memory: Memory,
        function_name: Callable[[int], str],
    ) -> None:
        self._search, self._graph, self._types = search, graph, types
        self._memory, self._function_name = memory, function_name
        # Scalars of memory views are read faster than those of arrays.
        self._first, self._targets = graph.first.data, graph.targets.data
        self._headers = graph.type_numbers.data
        self._node, self._edge, self._type = search.node.data, search.edge.data, search.type.data
        self._spans = graph.slots.first.tolist()
        self._sizes = graph.slots.sizes.tolist()
        self._starts = graph.slots.starts.tolist()
        self._known: dict[tuple[int, ...], tuple[int, int]] = {}
        self._words: dict[int, int] = {}

    def follow(self, level: Numbers) -> Numbers:
        """Reach what a thin level leads to, and so on, until a level has many objects."""
        first, targets, node = self._first, self._targets, self._node
        new: list[int] = level.tolist()
        while new and len(new) < THIN:
            edges = [
                (slot, edge)
                for slot in new
                for edge in range(first[slot], first[slot + 1])
                if node[targets[edge]] == _UNREACHED
            ]
            if len(edges) > _MANY_EDGES:
                return self._search.wide(np.array(new, np.int64))
            new = [
                targets[edge]
                for source, edge in edges
                if node[targets[edge]] == _UNREACHED and self._reach(source, edge)
            ]
        return np.array(new, np.int64)

    def _reach(self, source: int, edge: int) -> bool:
        target = self._targets[edge]
        offset, is_first, kind = *self._graph.one(edge), self._type[source]
        span = bisect_right(self._spans, target) - 1
        size = self._sizes[span]
        if kind == UNKNOWN:
            relative = 0
        else:
            relative = offset - self._graph.header_of(self._source_size(source))
            if period := self._types.period(kind):
                relative %= period
        step = self._types.step(kind, relative)
        if not step.is_reference:
            return False
        to = step.type
        if step.ask is not Ask.NOTHING:
            place = self._address(source) + offset
            to = self._asked(step, place, self._starts[span] + (target - self._spans[span]) * size)
        header = self._headers[target]
        key = self._node[source], kind, relative, to, size, is_first, header
        known = self._known.get(key)
        if known is None:
            to = self._search.fitted(to, size, is_first, header)
            below = self._search.tree.below(self._node[source], step._replace(type=to))
            known = self._known[key] = to, below
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
        self._type[target], self._node[target] = known
        self._edge[target] = edge
        return True

    def _source_size(self, slot: int) -> int:
        size: int = self._sizes[bisect_right(self._spans, slot) - 1]
        return size

    def _address(self, slot: int) -> int:
        span = bisect_right(self._spans, slot) - 1
        address: int = self._starts[span] + (slot - self._spans[span]) * self._sizes[span]
        return address

    def _asked(self, step: Step, place: int, target: int) -> int:
        match step.ask:
            case Ask.TABLES_BEHIND:
                is_only = not self._word(place + _WORD_BYTES)
                return self._types.only_group(step.type) if is_only else step.type
            case Ask.FUNCTION:
                return self._closure(target)
        word = self._word(place - _WORD_BYTES)
        if step.ask is Ask.ITAB_BEFORE:
            if word not in self._words:
                self._words[word] = self._word(word + int(_ITAB_TYPE_AT))
            word = self._words[word]
        kind, is_function = self._types.of_dynamic(word) if 0 < word < _END else (UNKNOWN, False)
        return self._closure(target) if is_function else kind

    def _closure(self, target: int) -> int:
        return self._types.number(Form.CLOSURE, name=self._function_name(self._word(target)))

    def _word(self, address: int) -> int:
        try:
            return int.from_bytes(self._memory.read(address, _WORD_BYTES), "little")
        except UnreadableMemory:
            return 0


def _unique(keys: Numbers) -> tuple[Numbers, Numbers]:
    """The different rows, and the index of each row among them; faster than np.unique by rows."""
    code = np.zeros(len(keys), np.int64)
    for column in range(keys.shape[1]):
        values, which = np.unique(keys[:, column], return_inverse=True)
        code = code * len(values) + which
        _, code = np.unique(code, return_inverse=True)
    _, index = np.unique(code, return_index=True)
    return keys[index], code
