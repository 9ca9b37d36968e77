"""Numbers for the slots of a target's heap, by address, and the slot that a word points to.

As the runtime's own findObject (runtime/mbitmap.go, Go 1.19 to 1.27): the arena, the page, its
span, then the offset in the span divided by the size of its slots. Here, for millions of words at
once.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.arenas import PAGE_SHIFT
from ebpfprof.goruntime.spans import PAGE_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory

    Words = npt.NDArray[np.uint64]
    Numbers = npt.NDArray[np.int32]

MAX_ARENAS: Final = 1 << 9  # of 64 MiB: 32 GiB, 16 MiB of our memory
ARENA_SHIFT: Final = 26
_PAGES_SHIFT: Final = ARENA_SHIFT - PAGE_SHIFT
_PAGES: Final = 1 << _PAGES_SHIFT  # of an arena
_ADDRESS_END: Final = 1 << 47
_NONE: Final = -1


class Slots:
    """All slots of the spans in `rows`, whether they have an object or are free.

    `rows` are those of goruntime.spans.Spans, in order of address. `left_out` is how many bytes of
    spans have no numbers: beyond the limits, or because they contradict others.
    """

    def __init__(self, rows: npt.NDArray[Any]) -> None:
        bytes_of_all = _bytes_of(rows)
        rows, sizes = _in_order(rows, bytes_of_all)
        self.left_out = int(bytes_of_all.sum()) - int(sizes.sum())
        self.rows = rows
        self.starts: Words = rows["start"].astype(np.uint64)
        self.sizes: Words = rows["slot"].astype(np.uint64)
        self.counts = _counts(rows, sizes)
        self.first = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(self.counts, out=self.first[1:])
        self.count = int(self.first[-1])
        is_small = self.counts > 1
        magic = ((1 << 32) + self.sizes - np.uint64(1)) // np.maximum(self.sizes, np.uint64(1))
        self.magic = np.where(is_small, magic, np.uint64(0))
        self.different_sizes, numbers = np.unique(self.sizes, return_inverse=True)
        self.size_number: Numbers = numbers.astype(np.int32)
        """Of each span: the index of its slots' size among the different ones."""
        self._make_table(sizes)

    @cached_property
    def span(self) -> Numbers:
        """The index of each slot's span: for heaps whose slots are few enough."""
        return np.repeat(np.arange(len(self.rows), dtype=np.int32), self.counts)

    def _make_table(self, sizes: npt.NDArray[np.int64]) -> None:
        """The span of each page, by arena."""
        first = int(self.starts[0]) >> ARENA_SHIFT if len(self.starts) else 0
        ends = self.starts + sizes.astype(np.uint64)
        last = (int(ends[-1]) - 1) >> ARENA_SHIFT if len(ends) else first
        self.base = np.uint64(first << ARENA_SHIFT)
        count = last - first + 1 if len(ends) else 0
        self.limit = np.uint64(count << ARENA_SHIFT)
        """How many bytes lie between the first arena's first one, `base`, and the last's end."""
        self._relative = (self.starts - self.base).view(np.int64)
        self.multipliers = self.magic.view(np.int64)
        pages = (sizes // PAGE_BYTES).astype(np.int64)
        begin = self._relative >> PAGE_SHIFT
        spans = np.repeat(np.arange(len(pages), dtype=np.int32), pages)
        within = np.arange(len(spans), dtype=np.int64) - np.repeat(np.cumsum(pages) - pages, pages)
        page = np.repeat(begin, pages) + within
        arenas = np.unique(page // _PAGES)
        self.arenas = np.full(last - first + 1, len(arenas), np.int64)
        """The number of each arena from the first to the last, among those that have spans."""
        self.arenas[arenas] = np.arange(len(arenas))
        self.arena_pages = self.arenas * _PAGES
        self.table = np.full((len(arenas) + 1) * _PAGES, _NONE, np.int32)
        self.table[self.arena_pages[page // _PAGES] + page % _PAGES] = spans

    @property
    def bytes_with_pointers(self) -> int:
        """How many bytes the spans have whose objects may have pointers."""
        return int(_bytes_of(self.rows[(self.rows["class"] & 1) == 0]).sum())

    def may_point(self, words: Words) -> npt.NDArray[np.int64]:
        """The indices of the words that lie between the heap's first and last arena."""
        return np.flatnonzero((words - self.base) < self.limit)

    def locate(self, words: Words) -> tuple[Numbers, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The span that each word points into, -1 for none; which of its slots, and its offset.

        The words are some that may_point() has chosen. Offsets are those in the span (bytes).
        """
        relative = (words - self.base).view(np.int64)
        pages = relative >> PAGE_SHIFT
        spans = self.table[self.arena_pages[pages >> _PAGES_SHIFT] + (pages & (_PAGES - 1))]
        known = np.maximum(spans, 0)
        offsets = relative - self._relative[known]
        numbers = (offsets * self.multipliers[known]) >> 32
        spans[numbers >= self.counts[known]] = _NONE
        return spans, numbers, offsets

    def of(self, words: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The slot that each word points to, -1 for none; and whether it points to its first byte.

        The words are some that may_point() has chosen.
        """
        spans, numbers, offsets = self.locate(words)
        slots = np.where(spans >= 0, self.first[spans] + numbers, _NONE)
        return slots, numbers * self.sizes[spans].view(np.int64) == offsets

    def find(self, words: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """As of(), for any words."""
        slots = np.full(len(words), _NONE, np.int64)
        is_first = np.zeros(len(words), np.bool_)
        chosen = self.may_point(words)
        slots[chosen], is_first[chosen] = self.of(words[chosen])
        return slots, is_first

    def spans_of(self, slots: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """The index of each slot's span."""
        return np.searchsorted(self.first, slots, side="right").astype(np.int64) - 1

    def addresses(self, slots: npt.NDArray[np.integer[Any]]) -> Words:
        """The address of each slot."""
        spans = self.spans_of(slots)
        within = (slots.astype(np.int64) - self.first[spans]).astype(np.uint64)
        addresses: Words = self.starts[spans] + within * self.sizes[spans]
        return addresses

    def are_allocated(
        self, memory: Memory, slots: npt.NDArray[np.integer[Any]]
    ) -> npt.NDArray[np.bool_]:
        """Which slots have an object, dead or alive, since their spans were swept last.

        runtime/mheap.go, mspan.isFree, Go 1.19 to 1.27. Raises TargetGone.
        """
        spans = self.spans_of(slots)
        number = (slots.astype(np.int64) - self.first[spans]).astype(np.uint64)
        octets = memory.read_records(
            self.rows["bits"][spans] + (number >> np.uint64(3)), np.dtype("u1")
        )
        is_marked = (octets >> (number & np.uint64(7)).astype(np.uint8)) & 1 != 0
        allocated: npt.NDArray[np.bool_] = is_marked | (number < self.rows["free_from"][spans])
        return allocated

    def bytes_of(self, slots: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """The size of each slot in bytes."""
        sizes: npt.NDArray[np.int64] = self.sizes[self.spans_of(slots)].view(np.int64)
        return sizes


def _bytes_of(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    sizes: npt.NDArray[np.int64] = np.minimum(rows["pages"], np.uint64(1 << 34)).astype(np.int64)
    return sizes * PAGE_BYTES


def _counts(rows: npt.NDArray[Any], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many slots each span has; a large object has one, whatever its span's size."""
    slots = rows["slot"].astype(np.int64)
    counts: npt.NDArray[np.int64] = np.where(rows["class"] >> 1 == 0, 1, sizes // slots)
    return counts


def _in_order(
    rows: npt.NDArray[Any], sizes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The spans by address that neither overlap nor exceed the limits."""
    is_sound = (
        (rows["slot"] % 8 == 0)
        & (rows["start"] > 0)
        & (rows["start"] < _ADDRESS_END)
        & (sizes <= 1 << 40)
    )
    rows, sizes = rows[is_sound], sizes[is_sound]
    order = np.argsort(rows["start"], kind="stable")
    rows, sizes = rows[order], sizes[order]
    if not len(rows):
        return rows, sizes
    starts = rows["start"].astype(np.int64)
    # The furthest end of all spans before: a span that begins earlier overlaps one of them.
    ends = np.concatenate([[0], np.maximum.accumulate(starts + sizes)[:-1]])
    is_kept = starts >= ends
    rows, sizes, starts = rows[is_kept], sizes[is_kept], starts[is_kept]
    is_kept = np.cumsum(sizes) <= MAX_ARENAS << ARENA_SHIFT
    arenas = np.cumsum(np.diff(starts >> np.int64(ARENA_SHIFT), prepend=-1) != 0)
    is_kept &= arenas <= MAX_ARENAS
    return rows[is_kept], sizes[is_kept]
