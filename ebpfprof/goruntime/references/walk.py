"""Which objects are reached, by which path: breadth first, from the roots, without a graph.

An object is read when its turn comes. What it refers to and was not reached before is the next
level. So a bit for each object is enough to know what was reached, and only the objects of the
level must be kept: that is what makes large heaps possible. Each object belongs to the path that
reached it first.

The program runs on meanwhile. After the objects of a level were read, the references that led to
them are read a second time: if one is another one now, its object and all that was read from it
belong to no path.

A level may be wider than what is kept: then it is done in parts, each with what lies below it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.arenas import PAGE_SHIFT
from ebpfprof.goruntime.references.key_numbers import KeyNumbers
from ebpfprof.goruntime.references.marks import Marks
from ebpfprof.goruntime.references.object_types import (
    LARGEST_SMALL,
    LARGEST_WITHOUT_HEADER,
    NOWHERE,
    UNKNOWN,
    Ask,
    ReferenceStep,
)
from ebpfprof.goruntime.references.parts import BLOCK_BYTES, WORD_BYTES, blocks
from ebpfprof.goruntime.references.path_tree import PathTree
from ebpfprof.goruntime.references.slots import ARENA_SHIFT
from ebpfprof.goruntime.spans import PAGE_BYTES
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.references.heap import Heap
    from ebpfprof.goruntime.references.parts import Block
    from ebpfprof.goruntime.references.roots import RootWords

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WalkLimits:
    """Levels of more than `widest` objects are done in parts, of fewer than `thin` one by one.

    An object of a level takes 24 bytes of our memory. At most about 5 × `widest` objects wait.
    """

    widest: int = 1 << 21
    thin: int = 160


USUAL: Final = WalkLimits()
_LARGE_BYTES: Final = 8192
_PAGE_WORDS: Final = PAGE_BYTES // WORD_BYTES
_IN_PAGE: Final = PAGE_BYTES - 1
_PAGE_IN_ARENA: Final = (1 << (ARENA_SHIFT - PAGE_SHIFT)) - 1
_MOST_OBJECTS: Final = 1 << 14
"""After so many the pages are read again: the program runs on meanwhile."""
_MAX_KNOWN: Final = 1 << 18
_NO_REFERENCE: Final = -1
_MAX_OFFSET: Final = (1 << 31) - 1
_SHIFT: Final = 32
_TYPE_BITS: Final = 20
_LOW: Final = (1 << _TYPE_BITS) - 1
_NOT_CHECKED: Final = 0
_MOST_WAITING: Final = 4  # times the widest level: then another one may have next to nothing
_NARROWEST: Final = 64  # this fraction of the widest level is read at once in any case
_MAX_STEPS: Final = 1 << 21
_MAX_PLACES: Final = 1 << 20
_WORD: Final = np.dtype("<u8")


_NODE, _TYPE, _PERIOD, _OBJECTS, _USED = range(5)  # rows of HeapWalk's table of places
# What a place that a step leads to depends on, in one number: from the highest bit on, the number
# of the step, of the type that the heap records of the object, of its slot's size, and whether the
# reference leads to its first byte.
_STEP_AT: Final = 41
_HEADER_AT: Final = 21
_SIZE_AT: Final = 1


@dataclass(frozen=True, slots=True)
class ReachedObjects:
    """Objects that were reached, and are to be read.

    `starts` are their addresses, relative to the heap's first arena; `spans` their spans, `places`
    as in HeapWalk, `edges` the addresses of the references by which they were reached first, 0 if
    these are not to be read again. `skipped` is how many bytes of each were read already.
    """

    starts: Numbers
    spans: npt.NDArray[np.int32]
    places: npt.NDArray[np.int32]
    edges: Numbers
    skipped: Numbers | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, rows: Numbers | slice | Mask) -> ReachedObjects:
        """Some of them."""
        skipped = None if self.skipped is None else self.skipped[rows]
        return ReachedObjects(
            self.starts[rows], self.spans[rows], self.places[rows], self.edges[rows], skipped
        )


def joined(levels: Sequence[ReachedObjects]) -> ReachedObjects:
    """All objects of several levels, of which none was read in part."""
    return ReachedObjects(
        np.concatenate([np.zeros(0, np.int64), *(level.starts for level in levels)]),
        np.concatenate([np.zeros(0, np.int32), *(level.spans for level in levels)]),
        np.concatenate([np.zeros(0, np.int32), *(level.places for level in levels)]),
        np.concatenate([np.zeros(0, np.int64), *(level.edges for level in levels)]),
    )


class HeapWalk:
    """Reaches objects, and adds them up by path.

    A place is a path's node in `tree` with the type of the object there. `objects` and `used`
    (bytes) are sums by place; `changed` and `changed_bytes` of objects that belong to no path.
    """

    def __init__(self, heap: Heap, limits: WalkLimits) -> None:
        slots, recorded = heap.slots, heap.recorded
        self._memory, self.slots, self._types = heap.memory, slots, heap.types
        self._pointed, self._recorded, self._widest = heap.pointed, recorded, limits.widest
        self._width = limits.widest
        self._base = int(slots.base)
        self._begins = (slots.starts - slots.base).view(np.int64)
        self._sizes = slots.sizes.view(np.int64)
        self._bytes = (self._sizes & -WORD_BYTES).astype(np.int64)
        kinds = slots.rows["class"]
        self.has_pointers = (kinds & 1) == 0
        may_have_type = self.has_pointers & bool(recorded)
        is_small = (self._sizes > LARGEST_WITHOUT_HEADER) & (self._sizes <= LARGEST_SMALL)
        has_header = may_have_type & is_small & (kinds >> 1 != 0)
        self._header_bytes = np.where(has_header, WORD_BYTES, 0)
        has_span_type = "type" in (slots.rows.dtype.names or ())
        self._is_large = may_have_type & (kinds >> 1 == 0) & has_span_type
        self.may_have_type = has_header | self._is_large
        self.tree = PathTree()
        self.marks = Marks(slots)
        self.changed = self.changed_bytes = 0
        self._place_keys: list[tuple[int, int]] = []
        self._place_numbers: dict[tuple[int, int], int] = {}
        self._place_table = np.zeros((5, 64), np.int64)  # node, type, period, objects, used
        self._steps: list[ReferenceStep] = []
        self._step_numbers: dict[tuple[int, ReferenceStep], int] = {}
        self._step_nodes: list[int] = []
        self._step_table = np.zeros((3, 64), np.int64)  # type, ask, is a reference
        self._known_steps = KeyNumbers(self._new_step)
        self._known_arrivals = KeyNumbers(self._new_arrival)
        self._known_places = KeyNumbers(self._new_place)
        self._headers: list[int] = [0]
        self._header_numbers: dict[int, int] = {0: 0}
        self.header_words = self._header_bytes // WORD_BYTES
        self._thin = FewObjects(self, heap, limits.thin)
        self._thinnest = limits.thin

    # Places, steps and what they lead to, by number.

    def place(self, node: int, kind: int) -> int:
        """The number of a place: a node of the tree, and a type."""
        if len(self._place_keys) >= _MAX_PLACES:
            kind = UNKNOWN
        key = node, kind
        number = self._place_numbers.get(key)
        if number is None:
            number = self._place_numbers[key] = len(self._place_keys)
            self._place_keys.append(key)
            self._place_table = _with_column(self._place_table, number)
            self._place_table[:, number] = node, kind, self._types.period(kind), 0, 0
        return number

    def place_at(self, number: int) -> tuple[int, int]:
        """The node and the type of a place."""
        return self._place_keys[number]

    def step_from(self, place: int, offset: int) -> int:
        """The number of the reference at an offset, less the period, of an object at a place."""
        node, kind = self._place_keys[place]
        return self._step_number(node, self._types.step(kind, offset))

    def _step_number(self, node: int, step: ReferenceStep) -> int:
        if len(self._steps) >= _MAX_STEPS:
            step = NOWHERE
        key = node, step
        number = self._step_numbers.get(key)
        if number is None:
            number = self._step_numbers[key] = len(self._steps)
            self._steps.append(step)
            self._step_nodes.append(node)
            self._step_table = _with_column(self._step_table, number)
            self._step_table[:, number] = step.type, step.ask, step.is_reference
        return number

    def _new_step(self, key: int) -> int:
        return self.step_from(key >> _SHIFT, key & ((1 << _SHIFT) - 1))

    def _new_arrival(self, key: int) -> int:
        """A step whose type was asked for."""
        number = key >> _TYPE_BITS
        step = self._steps[number]._replace(type=key & _LOW, ask=Ask.NOTHING)
        return self._step_number(self._step_nodes[number], step)

    def _new_place(self, key: int) -> int:
        size = int(self.slots.different_sizes[key >> _SIZE_AT & _LOW])
        recorded = self._headers[key >> _HEADER_AT & _LOW]
        return self.arrived(key >> _STEP_AT, size, recorded, is_first=bool(key & 1))

    def arrived(self, number: int, size: int, recorded: int, *, is_first: bool) -> int:
        """The place to which a step leads, in a slot of a size (bytes); see PointedTypes.fitted."""
        step = self._steps[number]
        kind = self._pointed.fitted(step.type, size, recorded, is_first=is_first)
        node = self.tree.below(self._step_nodes[number], step._replace(type=kind))
        return self.place(node, kind)

    def step_at(self, number: int) -> ReferenceStep:
        """A step by its number."""
        return self._steps[number]

    def step_to(self, number: int, kind: int) -> int:
        """The step that is as another, and leads to a type."""
        return self._new_arrival((number << _TYPE_BITS) | kind)

    def header(self, word: int) -> int:
        """The number of the type that the heap records in a word; 0 for none."""
        assert self._recorded
        start, end = self._recorded
        if not start <= word < end:
            return 0
        number = self._header_numbers.get(word)
        if number is None:
            if len(self._headers) > _LOW:
                return 0
            number = self._header_numbers[word] = len(self._headers)
            self._headers.append(word)
        return number

    # Sums.

    def count(self, places: npt.NDArray[np.integer[Any]], sizes: Numbers) -> None:
        """Add objects of these places and sizes (bytes)."""
        np.add.at(self._place_table[_OBJECTS], places, 1)
        np.add.at(self._place_table[_USED], places, sizes)

    def add_sum(self, place: int, objects: int, used: int) -> None:
        """Add this many objects of a place, of `used` bytes together."""
        self._place_table[_OBJECTS, place] += objects
        self._place_table[_USED, place] += used

    def sums(self) -> tuple[Numbers, Numbers]:
        """Objects and bytes by the tree's nodes."""
        count, places = len(self.tree.nodes), len(self._place_keys)
        nodes = self._place_table[_NODE, :places]
        objects, used = np.zeros(count, np.int64), np.zeros(count, np.int64)
        np.add.at(objects, nodes, self._place_table[_OBJECTS, :places])
        np.add.at(used, nodes, self._place_table[_USED, :places])
        return objects, used

    def total(self) -> tuple[int, int]:
        """All objects, and their bytes."""
        sums = self._place_table[:, : len(self._place_keys)].sum(axis=1)
        return int(sums[_OBJECTS]), int(sums[_USED])

    # Roots.

    def add(
        self, words: RootWords, chosen: Numbers, nodes: Sequence[int], types: Sequence[int]
    ) -> None:
        """Reach all that the chosen words of roots lead to; a node and a type for each root."""
        numbers = [self.place(node, kind) for node, kind in zip(nodes, types, strict=True)]
        places = np.array(numbers, np.int32)[words.roots[chosen]]
        starts, spans = self.located(words.slots[chosen])
        level, _ = self._reach(
            places,
            words.offsets[chosen],
            words.places[chosen].view(np.int64),
            starts,
            spans,
            words.is_first[chosen],
        )
        level.edges[:] = _NOT_CHECKED
        self.follow(level)

    def located(self, slots: Numbers) -> tuple[Numbers, npt.NDArray[np.int32]]:
        """Where slots begin, relative to the first arena, and their spans."""
        spans = self.slots.spans_of(slots)
        starts = self._begins[spans] + (slots - self.slots.first[spans]) * self._sizes[spans]
        return starts, spans.astype(np.int32)

    def are_reached(self, slots: Numbers) -> Mask:
        """Which of these slots were reached."""
        return ~self.marks.are_unset(self.located(slots)[0])

    def reserve(self, slots: Numbers, node: int, kind: int) -> None:
        """Give objects of a type to a node, if they were not reached, without what they refer to.

        See below().
        """
        starts, spans = self.located(slots)
        rows = np.flatnonzero(self.marks.are_unset(starts))
        self.marks.set(starts[rows])
        self.count(np.full(len(rows), self.place(node, kind)), self._sizes[spans[rows]])

    def bar(self, slots: Numbers) -> Numbers:
        """Don't reach these slots, until unbar(). Returns those that were not reached before."""
        slots = np.unique(slots)
        starts, _ = self.located(slots)
        is_new = self.marks.are_unset(starts)
        self.marks.set(starts[is_new])
        return slots[is_new]

    def unbar(self, slots: Numbers) -> None:
        """Let references reach these slots, which bar() returned, again."""
        self.marks.unset(self.located(slots)[0])

    def level_of(self, objects: Sequence[tuple[int, int, int]]) -> ReachedObjects:
        """A level of these starts, spans and places."""
        rows = np.array(objects, np.int64).reshape(-1, 3)
        spans, places = rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32)
        return ReachedObjects(rows[:, 0].copy(), spans, places, np.zeros(len(rows), np.int64))

    def recorded_type(self, start: int, span: int) -> int:
        """The address of the type that the heap records of an object; 0 for none."""
        starts, spans = np.array([start], np.int64), np.array([span], np.int32)
        return self._headers[int(self._headers_of(starts, spans)[0])]

    def below(self, slots: Numbers, node: int, kind: int) -> None:
        """Reach what these slots refer to, as if they were objects of a type at a node.

        They are not counted themselves.
        """
        starts, spans = self.located(slots)
        place, none = self.place(node, kind), np.zeros(len(slots), np.int64)
        level = ReachedObjects(starts, spans, np.full(len(slots), place, np.int32), none)
        while len(level):
            children, _, rest = self._expanded(level)
            self.follow(children)
            level = rest[0] if rest else children.at(slice(0))

    def follow(self, level: ReachedObjects) -> None:
        """Count these objects, and reach all that they refer to."""
        pending = [level]
        while pending:
            level = pending.pop()
            if len(level) < self._thinnest and level.skipped is None:
                level = self._thin.follow(level)
            if not len(level):
                continue
            # The more objects wait, the fewer may be added.
            waiting = sum(map(len, pending))
            self._width = max(
                1, self._widest // _NARROWEST, self._widest - waiting // _MOST_WAITING
            )
            if len(level) > self._width:
                order = np.argsort(level.starts)
                pending.append(level.at(order[self._width :]))
                level = level.at(order[: self._width])
            self._wide(level, pending)

    def _wide(self, level: ReachedObjects, pending: list[ReachedObjects]) -> None:
        children, sources, rest = self._expanded(level)
        if rest is not None:
            pending.append(rest[0])
            level, sources = level.at(~rest[1]), (np.cumsum(~rest[1]) - 1)[sources]
        # One that was read in part before was counted then.
        is_new = np.ones(len(level), np.bool_) if level.skipped is None else level.skipped == 0
        changed = self._changed(level, is_new)
        counted = np.flatnonzero(is_new & ~changed)
        self.count(level.places[counted], self._sizes[level.spans[counted]])
        if changed.any():
            self._drop(level.at(changed))
            is_gone = changed[sources]
            self._drop(children.at(is_gone))
            children = children.at(~is_gone)
        pending.append(children)

    def _drop(self, level: ReachedObjects) -> None:
        self.changed += len(level)
        self.changed_bytes += int(self._sizes[level.spans].sum())

    def _changed(self, level: ReachedObjects, chosen: Mask) -> Mask:
        """Which of the chosen objects were reached by a reference that is another one now."""
        changed = np.zeros(len(level), np.bool_)
        rows = np.flatnonzero(chosen & (level.edges != _NOT_CHECKED))
        rows = rows[np.argsort(level.edges[rows], kind="stable")]
        edges = level.edges[rows]
        for block in blocks(self._memory, edges, np.full(len(edges), WORD_BYTES, np.int64)):
            part = rows[block.first : block.last]
            offsets = (block.words[block.at] - self.slots.base).view(np.int64)
            offsets -= level.starts[part]
            changed[part] = offsets.view(np.uint64) >= self._sizes[level.spans[part]].view(
                np.uint64
            )
        return changed

    def _expanded(
        self, level: ReachedObjects
    ) -> tuple[ReachedObjects, Numbers, tuple[ReachedObjects, Mask] | None]:
        """What the objects of a level refer to that was not reached yet.

        Returns it, and by which object each was reached. If that would be too much at once, also
        what of the level is still to be read, and of which objects nothing was read yet.
        """
        rows = np.flatnonzero(self.has_pointers[level.spans])
        rows = rows[np.argsort(level.starts[rows], kind="stable")]
        sizes = self._bytes[level.spans[rows]]
        skipped = np.zeros(len(rows), np.int64) if level.skipped is None else level.skipped[rows]
        sizes = sizes - skipped
        if len(sizes) and int(sizes.max()) > BLOCK_BYTES:
            repeats = np.maximum(1, -(-sizes // BLOCK_BYTES))
            number = np.arange(int(repeats.sum())) - np.repeat(
                np.cumsum(repeats) - repeats, repeats
            )
            rows, sizes, skipped = (np.repeat(a, repeats) for a in (rows, sizes, skipped))
            skipped += number * BLOCK_BYTES
            sizes = np.minimum(sizes - number * BLOCK_BYTES, BLOCK_BYTES)
        starts = level.starts[rows] + self._base + skipped
        found, sources, total = [], [], 0
        for block in blocks(self._memory, starts, sizes):
            children, which = self._in_block(level, block, rows, sizes, skipped)
            found.append(children)
            sources.append(which)
            total += len(children)
            if total > self._width and block.last < len(rows):
                left, first = np.unique(rows[block.last :], return_index=True)
                more = replace(level.at(left), skipped=skipped[block.last :][first])
                is_left = np.zeros(len(level), np.bool_)
                is_left[left[more.skipped == 0]] = True
                return joined(found), np.concatenate(sources), (more, is_left)
        none = np.zeros(0, np.int64)
        return joined(found), np.concatenate([none, *sources]), None

    def _in_block(
        self, level: ReachedObjects, block: Block, rows: Numbers, sizes: Numbers, skipped: Numbers
    ) -> tuple[ReachedObjects, Numbers]:
        all_relative = block.words - self.slots.base
        indices = np.flatnonzero(all_relative < self.slots.limit)
        relative = all_relative[indices].view(np.int64)
        is_new = self.marks.are_unset(relative)
        indices, relative = indices[is_new], relative[is_new]
        # The parts that have them.
        parts = np.searchsorted(block.at, indices, side="right") - 1
        within = (indices - block.at[parts]) * WORD_BYTES
        parts += block.first
        spans, numbers, offsets = self.slots.locate(block.words[indices])
        chosen = np.flatnonzero((within < sizes[parts]) & (spans >= 0))
        parts, within, spans = parts[chosen], within[chosen], spans[chosen]
        offsets, in_span = offsets[chosen], numbers[chosen] * self._sizes[spans]
        is_first, starts = offsets == in_span, relative[chosen] - offsets + in_span
        which = rows[parts]
        edges = level.starts[which] + (skipped[parts] + within + self._base)
        within = within + skipped[parts] - self._header_bytes[level.spans[which]]
        children, reached = self._reach(level.places[which], within, edges, starts, spans, is_first)
        return children, which[reached]

    def _reach(
        self,
        places: npt.NDArray[np.int32],
        offsets: Numbers,
        edges: Numbers,
        starts: Numbers,
        spans: npt.NDArray[np.int32],
        is_first: Mask,
    ) -> tuple[ReachedObjects, Numbers]:
        """Reach the objects that begin at `starts`, each by the first reference that leads to it.

        `places` are those of the objects that have the references, `offsets` where in these they
        are, `edges` their addresses. Returns what was reached, and by which references.
        """
        rows = np.arange(len(starts))
        periods = self._place_table[_PERIOD, places]
        offsets = np.where(periods > 0, offsets % np.maximum(periods, 1), offsets)
        # Of unknown objects, it does not matter where.
        offsets[self._place_table[_TYPE, places] == UNKNOWN] = 0
        np.clip(offsets, 0, _MAX_OFFSET, out=offsets)
        steps = self._known_steps.of((places.astype(np.int64) << _SHIFT) | offsets)
        are = (self._step_table[2][steps] != 0) & self.marks.are_unset(starts)
        if not are.all():
            rows, steps = rows[are], steps[are]
        order = np.argsort(starts[rows], kind="stable")
        rows, steps = rows[order], steps[order]
        starts = starts[rows]
        is_one = np.concatenate([[True], starts[1:] != starts[:-1]])[: len(starts)]
        rows, steps, starts = rows[is_one], steps[is_one], starts[is_one]
        spans, edges = spans[rows], edges[rows]
        self.marks.set(starts)
        asks = self._step_table[1][steps]
        if asks.any():
            steps = self._asked(steps, asks, edges, starts)
        headers = self._headers_of(starts, spans)
        sizes = np.minimum(self.slots.size_number[spans].astype(np.int64), _LOW)
        keys = (steps << _STEP_AT) | (headers << _HEADER_AT) | (sizes << _SIZE_AT) | is_first[rows]
        reached = self._known_places.of(keys).astype(np.int32)
        return ReachedObjects(starts, spans, reached, edges), rows

    def _asked(self, steps: Numbers, asks: Numbers, edges: Numbers, starts: Numbers) -> Numbers:
        """The steps, with the types that memory has."""
        steps = steps.copy()
        for ask in np.unique(asks).tolist():
            if ask != Ask.NOTHING:
                rows = np.flatnonzero(asks == ask)
                kinds = self._pointed.asked(
                    Ask(ask),
                    self._step_table[0][steps[rows]],
                    edges[rows].view(np.uint64),
                    (starts[rows] + self._base).view(np.uint64),
                )
                steps[rows] = self._known_arrivals.of((steps[rows] << _TYPE_BITS) | kinds)
        return steps

    def _headers_of(self, starts: Numbers, spans: npt.NDArray[np.int32]) -> Numbers:
        """The numbers of the types that the heap records of objects; 0 for none."""
        headers = np.zeros(len(starts), np.int64)
        rows = np.flatnonzero(self.may_have_type[spans])
        if not len(rows):
            return headers
        is_large = self._is_large[spans[rows]]
        words = np.zeros(len(rows), np.uint64)
        if is_large.any():
            words[is_large] = self.slots.rows["type"][spans[rows[is_large]]]
        small = np.flatnonzero(~is_large)
        addresses = (starts[rows[small]] + self._base).view(np.uint64)
        words[small] = self._memory.read_records(addresses, _WORD)
        unique, which = np.unique(words, return_inverse=True)
        headers[rows] = np.array([self.header(word) for word in unique.tolist()], np.int64)[which]
        return headers


def _with_column(table: Numbers, number: int) -> Numbers:
    """A table that has a column of this number: the same one, or one twice as wide."""
    return table if number < table.shape[1] else np.concatenate([table, table], axis=1)


class FewObjects:
    """Levels of few objects, such as those of a long list, one object at a time, for a walk.

    numpy takes about a millisecond for a level, whatever it has.
    """

    def __init__(self, walk: HeapWalk, heap: Heap, most: int) -> None:
        """Levels of fewer than `most` objects are thin."""
        self._most = most
        self._walk, self._types = walk, heap.types
        self._pointed, self._memory = heap.pointed, heap.memory
        slots = self._slots = heap.slots
        self._base, self._limit = int(slots.base), int(slots.limit)
        # Scalars of memory views are read faster than those of arrays.
        self._begins = (slots.starts - slots.base).view(np.int64).data
        self._sizes = slots.sizes.view(np.int64).data
        self._known: dict[int, dict[int, int]] = {}
        self._known_count = 0

    def follow(self, level: ReachedObjects) -> ReachedObjects:
        """Count these objects; reach what they lead to, and so on, until a level has many.

        Returns that level, or one with a large object.
        """
        walk, slots = self._walk, self._slots
        base, limit, begins, sizes = self._base, self._limit, self._begins, self._sizes
        marks, cell_of, is_dense = walk.marks.octets.data, walk.marks.cell, walk.marks.is_dense
        table, arenas = slots.table.data, slots.arena_pages.data
        magic, counts = slots.multipliers.data, slots.counts.data
        has_pointers, size_number = walk.has_pointers.data, slots.size_number.data
        header_words = walk.header_words.data
        arena, page_at, in_arena = ARENA_SHIFT, PAGE_SHIFT, _PAGE_IN_ARENA  # locals are faster
        pages: dict[int, memoryview] = {}
        done = 0
        sums: dict[int, list[int]] = {}
        new = list(
            zip(level.starts.tolist(), level.spans.tolist(), level.places.tolist(), strict=True)
        )
        large: list[tuple[int, int, int]] = []
        while new and len(new) < self._most and not large:
            old, new = new, []
            for start, span, place in old:
                size = sizes[span]
                if size > _LARGE_BYTES:
                    large.append((start, span, place))
                    continue
                sum_ = sums.get(place)
                if sum_ is None:
                    sum_ = sums[place] = [0, 0]
                sum_[0] += 1
                sum_[1] += size
                if not has_pointers[span]:
                    continue
                done += 1
                if done == _MOST_OBJECTS:
                    done = 0
                    pages.clear()
                at = (start & _IN_PAGE) >> 3
                words: list[int]
                if at + (size >> 3) <= _PAGE_WORDS:
                    page = pages.get(start >> PAGE_SHIFT)
                    if page is None:
                        page = pages[start >> PAGE_SHIFT] = self._page(start)
                    words = page[at : at + (size >> 3)].tolist()
                else:
                    words = self._words(start + base, size).tolist()
                known = self._known.get(place)
                if known is None:
                    known = self._known[place] = {}
                header = header_words[span]
                for index, word in enumerate(words):
                    relative = word - base
                    if not 0 <= relative < limit:
                        continue
                    cell = relative >> 3 if is_dense else cell_of(relative)
                    if marks[cell >> 3] >> (cell & 7) & 1:
                        continue
                    to = table[arenas[relative >> arena] + (relative >> page_at & in_arena)]
                    if to < 0:
                        continue
                    begin = begins[to]
                    number = (relative - begin) * magic[to] >> 32
                    if number >= counts[to]:
                        continue
                    target = begin + number * sizes[to]
                    if target != relative:
                        cell = target >> 3 if is_dense else cell_of(target)
                        if marks[cell >> 3] >> (cell & 7) & 1:
                            continue
                    key = ((index - header) << 32) | (size_number[to] << 1) | (target == relative)
                    reached = known.get(key)
                    if reached is None:
                        edge = base + start + 8 * index
                        reached = self._reached(place, key, edge, target, to)
                    if reached < 0:
                        continue
                    marks[cell >> 3] |= 1 << (cell & 7)
                    new.append((target, to, reached))
        for place, (objects, used) in sums.items():
            walk.add_sum(place, objects, used)
        return walk.level_of(new + large)

    def _reached(self, place: int, key: int, edge: int, target: int, span: int) -> int:
        """The place to which a reference leads, -1 if it is a number."""
        walk = self._walk
        _, kind = walk.place_at(place)
        offset = 0
        if kind != UNKNOWN:
            offset = max(0, (key >> 32) * 8)
            if period := self._types.period(kind):
                offset %= period
        number = walk.step_from(place, offset)
        step = walk.step_at(number)
        can_be_kept = step.ask is Ask.NOTHING
        if not step.is_reference:
            reached = _NO_REFERENCE
        else:
            if not can_be_kept:
                kind = self._pointed.asked_one(step, edge, target + self._base)
                number = walk.step_to(number, kind)
            recorded = 0
            if walk.may_have_type[span]:
                can_be_kept = False
                recorded = walk.recorded_type(target, span)
            reached = walk.arrived(number, self._sizes[span], recorded, is_first=bool(key & 1))
        if can_be_kept:
            self._known_count += 1
            if self._known_count > _MAX_KNOWN:
                self._known.clear()
                self._known_count = 0
            self._known.setdefault(place, {})[key] = reached
        return reached

    def _page(self, start: int) -> memoryview:
        return self._words((start & ~_IN_PAGE) + self._base, PAGE_BYTES)

    def _words(self, address: int, size: int) -> memoryview:
        try:
            data = self._memory.read(address, size & -8)
        except UnreadableMemory:  # what is gone refers to nothing, as in blocks()
            data = bytes(size & -8)
        return memoryview(data).cast("Q")
