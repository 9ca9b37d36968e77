"""Levels of few objects, such as those of a long list, one object at a time.

numpy takes about a millisecond for a level, whatever it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.references.object_types import UNKNOWN, Ask
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from ebpfprof.goruntime.references.heap import Heap
    from ebpfprof.goruntime.references.walk import Level, Walk

_LARGE_BYTES: Final = 8192
_PAGE_SHIFT: Final = 13
_PAGE_BYTES: Final = 1 << _PAGE_SHIFT
_PAGE_WORDS: Final = _PAGE_BYTES // 8
_IN_PAGE: Final = _PAGE_BYTES - 1
_MOST_OBJECTS: Final = 1 << 14
"""After so many the pages are read again: the program runs on meanwhile."""
_MAX_KNOWN: Final = 1 << 18
_NO_REFERENCE: Final = -1


class ThinLevels:
    """Reaches objects for a walk."""

    def __init__(self, walk: Walk, heap: Heap, most: int) -> None:
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

    def follow(self, level: Level) -> Level:
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
                    page = pages.get(start >> _PAGE_SHIFT)
                    if page is None:
                        page = pages[start >> _PAGE_SHIFT] = self._page(start)
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
                    to = table[arenas[relative >> 26] + (relative >> 13 & 8191)]
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
        return self._words((start & ~_IN_PAGE) + self._base, _PAGE_BYTES)

    def _words(self, address: int, size: int) -> memoryview:
        try:
            data = self._memory.read(address, size & -8)
        except UnreadableMemory:
            data = bytes(size & -8)
        return memoryview(data).cast("Q")
