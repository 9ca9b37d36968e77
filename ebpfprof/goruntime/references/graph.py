"""All references between the objects of a target's heap: one pass over the spans with pointers.

Each word that leads into a slot counts as a reference. Numbers that look like one are rare
(heap addresses begin with 0xc0, or with random bits from Go 1.26 on); free slots may have old
pointers, but nothing leads to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.references.object_types import LARGEST_SMALL, LARGEST_WITHOUT_HEADER
from ebpfprof.goruntime.references.parts import WORD_BYTES, read_pieces

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.references.slots import Numbers, Slots, Words
    from ebpfprof.process.memory import Memory

MAX_SLOTS: Final = 1 << 25
"""Of a heap with more slots no references are kept; a slot takes about 24 bytes of our memory."""
MAX_EDGES: Final = 100_000_000
"""More references are not kept; one takes 8 bytes of our memory."""
_MAX_TYPES: Final = 1 << 20
_CHUNK_BYTES: Final = 2 << 20
_IS_FIRST: Final = np.uint32(1)
_MAX_OFFSET: Final = 0x7FFF_FFFF  # in words


class HeapTooLarge(EbpfprofError):  # noqa: N818 (reads better where it is raised)
    """There are too many objects or references to keep all references."""


class Chunk:
    """Memory that was read at once: parts of the heap, one behind the other.

    `spans` are their spans, `places` where each part begins in `words` (bytes), `skipped` how much
    of the span lies before the part, `sizes` how long each is (bytes).
    """

    def __init__(
        self,
        words: Words,
        spans: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        skipped: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> None:
        self.words, self.spans, self.places = words, spans, places
        self.skipped, self.sizes = skipped, sizes

    def sources(
        self, slots: Slots, indices: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The slot that has each word, and where in it the word is, in words.

        Behind the last slot of a span, it is the next span's first one, or none.
        """
        bounds = np.searchsorted(indices, self.places // WORD_BYTES)
        repeats = np.diff(bounds, append=len(indices))
        spans = self.spans
        # Where the span of each word would begin in `words`, in bytes.
        begin = np.repeat(self.places - self.skipped, repeats)
        offsets = (indices * WORD_BYTES - begin).astype(np.uint64)
        number = (offsets * np.repeat(slots.magic[spans], repeats)) >> np.uint64(32)
        sizes = np.repeat(slots.sizes[spans], repeats)
        is_there = number < np.repeat(slots.counts[spans].astype(np.uint64), repeats)
        within = ((offsets - number * sizes) // np.uint64(WORD_BYTES)).astype(np.int64)
        first = np.repeat(slots.first[spans], repeats)
        sources: npt.NDArray[np.int64] = np.where(is_there, first + number.astype(np.int64), -1)
        return sources, within


def chunks(memory: Memory, slots: Slots) -> Iterator[Chunk]:
    """The memory of all spans with pointers, in order of address; what is unmapped reads as 0.

    Raises TargetGone.
    """
    scanned = np.flatnonzero((slots.rows["class"] & 1) == 0)
    sizes = (slots.counts[scanned] * slots.sizes[scanned].astype(np.int64)) & -WORD_BYTES
    # Parts: a large object may need several chunks.
    repeats = np.maximum(1, -(-sizes // _CHUNK_BYTES))
    spans = np.repeat(scanned, repeats)
    number = np.arange(len(spans)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    skipped = number * _CHUNK_BYTES
    parts = np.minimum(np.repeat(sizes, repeats) - skipped, _CHUNK_BYTES)
    buffer = np.zeros(2 * _CHUNK_BYTES // WORD_BYTES, np.uint64)
    ends = np.cumsum(parts)
    first = 0
    while first < len(parts):
        done = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, done + _CHUNK_BYTES, side="right"))
        chosen = slice(first, max(last, first + 1))
        places = ends[chosen] - parts[chosen] - done
        words = buffer[: int(parts[chosen].sum()) // WORD_BYTES]
        starts = slots.starts[spans[chosen]].astype(np.int64) + skipped[chosen]
        read_pieces(memory, words, np.stack([starts, parts[chosen]], axis=1))
        yield Chunk(words, spans[chosen], places, skipped[chosen], parts[chosen])
        first = chosen.stop


class Graph:
    """The references between slots, by the slot that has them.

    Those of slot `n` are the elements from `first[n]` to `first[n + 1]`: `targets` are slots.
    `types` has the address of the type that the heap records of a slot, by `type_numbers`; 0 for
    none.
    """

    def __init__(self, memory: Memory, slots: Slots, types: tuple[int, int] | None) -> None:
        """`types` are the first address of type descriptors, and that behind the last one.

        None for versions of Go that record no types. Raises TargetGone or HeapTooLarge.
        """
        if slots.count > MAX_SLOTS:
            raise HeapTooLarge(_too_large(memory.pid, "slots", MAX_SLOTS))
        self.slots = slots
        self._memory = memory
        self._types = types
        self.type_addresses: list[int] = [0]
        self._type_numbers: dict[int, int] = {0: 0}
        self.type_numbers = np.zeros(slots.count, np.int32)
        counts = np.zeros(slots.count + 1, np.int32)
        # Memory that is not written to is not taken.
        most = min(MAX_EDGES, _words(slots))
        targets, offsets = np.empty(most, np.int32), np.empty(most, np.uint32)
        edges = 0
        for chunk in chunks(memory, slots):
            sources, target, offset = self._edges(chunk)
            if edges + len(target) > most:
                raise HeapTooLarge(_too_large(memory.pid, "references", most))
            targets[edges : edges + len(target)] = target
            offsets[edges : edges + len(target)] = offset
            edges += len(target)
            if len(sources):
                low = int(sources[0])
                of_chunk = np.bincount(sources - low)
                counts[low + 1 : low + 1 + len(of_chunk)] += of_chunk.astype(np.int32)
            if types:
                self._note_types(chunk)
        self._require()
        self.first: Numbers = np.cumsum(counts, dtype=np.int32, out=counts)
        self.targets: Numbers = targets[:edges]
        self._offsets = offsets[:edges]
        self.offset_view = self._offsets.data
        large = np.flatnonzero((slots.rows["class"] >> 1 == 0) & (slots.rows["class"] & 1 == 0))
        if types and "type" in (slots.rows.dtype.names or ()):
            self._note(slots.first[large], slots.rows["type"][large])

    def _require(self) -> None:
        """Raise TargetGone once the target has ended: what was read may be another process's."""
        self._memory.read_records(np.zeros(0, np.uint64), np.dtype("<u8"))

    def _edges(self, chunk: Chunk) -> tuple[npt.NDArray[np.int64], Numbers, npt.NDArray[np.uint32]]:
        """The references of a chunk by their order: source, target, offset and whether interior."""
        indices = self.slots.may_point(chunk.words)
        target, is_first = self.slots.of(chunk.words[indices])
        is_there = target >= 0
        if not is_there.all():
            indices, target, is_first = indices[is_there], target[is_there], is_first[is_there]
        source, within = chunk.sources(self.slots, indices)
        is_other = (source >= 0) & (source != target)
        if not is_other.all():
            source, target = source[is_other], target[is_other]
            within, is_first = within[is_other], is_first[is_other]
        offset = np.minimum(within, _MAX_OFFSET).astype(np.uint32) << _IS_FIRST
        return source, target.astype(np.int32), offset | is_first.astype(np.uint32)

    def _note_types(self, chunk: Chunk) -> None:
        """The types in the words before objects (runtime/mbitmap.go, heapBitsInSpan, 1.22 on)."""
        sizes = self.slots.sizes[chunk.spans].astype(np.int64)
        rows = np.flatnonzero(
            (sizes > LARGEST_WITHOUT_HEADER) & (self.slots.rows["class"][chunk.spans] >> 1 != 0)
        )
        counts = self.slots.counts[chunk.spans[rows]]
        number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.repeat(chunk.places[rows], counts) + number * np.repeat(sizes[rows], counts)
        slots = np.repeat(self.slots.first[chunk.spans[rows]], counts) + number
        self._note(slots, chunk.words[places // WORD_BYTES])

    def _note(self, slots: npt.NDArray[np.int64], words: Words) -> None:
        assert self._types
        start, end = self._types
        is_type = (words >= np.uint64(start)) & (words < np.uint64(end))
        addresses, which = np.unique(words[is_type], return_inverse=True)
        numbers = np.zeros(len(addresses), np.int32)
        for index, address in enumerate(addresses.tolist()):
            if address not in self._type_numbers:
                if len(self.type_addresses) >= _MAX_TYPES:
                    continue
                self._type_numbers[address] = len(self.type_addresses)
                self.type_addresses.append(address)
            numbers[index] = self._type_numbers[address]
        self.type_numbers[slots[is_type]] = numbers[which]

    def offsets(self, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where in its slot each reference is, in bytes."""
        offsets: npt.NDArray[np.int64] = (self._offsets[edges] >> _IS_FIRST).astype(
            np.int64
        ) * WORD_BYTES
        return offsets

    def one(self, edge: int) -> tuple[int, int]:
        """The offset of a reference in its slot (bytes), and whether it is to a first byte."""
        offset = self.offset_view[edge]
        return (offset >> 1) * WORD_BYTES, offset & 1

    def header_of(self, size: int) -> int:
        """How many bytes the runtime keeps before an object with pointers in a slot (bytes)."""
        is_small = LARGEST_WITHOUT_HEADER < size <= LARGEST_SMALL
        return WORD_BYTES if self._types and is_small else 0

    def header_bytes(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The same for each of these slots."""
        if not self._types:
            return np.zeros(len(slots), np.int64)
        sizes = self.slots.bytes_of(slots)
        is_small = (sizes > LARGEST_WITHOUT_HEADER) & (sizes <= LARGEST_SMALL)
        return np.where(is_small, WORD_BYTES, 0)

    def are_first(self, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each reference is to the first byte of a slot."""
        are_first: npt.NDArray[np.bool_] = (self._offsets[edges] & _IS_FIRST) != 0
        return are_first

    def sources(self, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The slot that has each reference."""
        return np.searchsorted(self.first, edges, side="right").astype(np.int64) - 1

    def edges_of(
        self, slots: npt.NDArray[np.integer[Any]]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """All references of these slots: each one's index in `slots`, and the reference."""
        begin = self.first[slots].astype(np.int64)
        counts = self.first[slots.astype(np.int64) + 1] - begin
        total = int(counts.sum())
        which = np.repeat(np.arange(len(slots)), counts)
        edges = np.arange(total) + np.repeat(begin - (np.cumsum(counts) - counts), counts)
        return which, edges

    def changed(self, edges: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Which of these references, in ascending order, are no longer there. Raises TargetGone."""
        gone = np.ones(len(edges), np.bool_)
        done = 0
        for chunk in chunks(self._memory, self.slots):
            if done >= len(edges):
                break
            last = int(np.searchsorted(edges, self._end(chunk)))
            chosen = edges[done:last].astype(np.int64)
            if len(chosen):
                sources = self.sources(chosen)
                spans = self.slots.spans_of(sources)
                offset = (sources - self.slots.first[spans]) * self.slots.sizes[spans].astype(
                    np.int64
                ) + self.offsets(chosen)
                gone[done:last] = self._changed_in(chunk, spans, offset, chosen)
            done = last
        self._require()
        return gone

    def _end(self, chunk: Chunk) -> int:
        """The reference behind the last one that a chunk has."""
        last = int(chunk.spans[-1])
        end = self.first[min(int(self.slots.first[last + 1]), self.slots.count)]
        limit = int(chunk.skipped[-1] + chunk.sizes[-1])
        if limit < int(self.slots.counts[last]) * int(self.slots.sizes[last]) - WORD_BYTES:
            # More of this large object follows.
            slot = int(self.slots.first[last])
            begin = int(self.first[slot])
            limit_here = np.uint32(limit // WORD_BYTES) << _IS_FIRST
            end = begin + int(np.searchsorted(self._offsets[begin : int(end)], limit_here))
        return int(end)

    def _changed_in(
        self,
        chunk: Chunk,
        spans: npt.NDArray[np.int64],
        offset: npt.NDArray[np.int64],
        edges: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.bool_]:
        parts = np.searchsorted(chunk.spans, spans)
        parts = np.minimum(parts, len(chunk.spans) - 1)
        places = chunk.places[parts] + offset - chunk.skipped[parts]
        is_inside = (chunk.spans[parts] == spans) & (places >= 0)
        places = np.clip(places // WORD_BYTES, 0, len(chunk.words) - 1)
        now, _ = self.slots.find(chunk.words[places])
        changed: npt.NDArray[np.bool_] = ~is_inside | (now != self.targets[edges])
        return changed


def _words(slots: Slots) -> int:
    """How many words the objects with pointers have."""
    scanned = (slots.rows["class"] & 1) == 0
    sizes = slots.counts[scanned] * slots.sizes[scanned].astype(np.int64)
    return int(sizes.sum()) // WORD_BYTES


def _too_large(pid: int, what: str, most: int) -> str:
    return (
        f"The heap of process {pid} has more than {most:,} {what}: too many to find out what would "
        "be freed. --references shows what keeps all objects alive, in a heap of any size."
    )
