"""Go's own dump of a heap: objects, and where in each the pointers are, as the collector knows it.

runtime/debug.WriteHeapDump writes it, with the program stopped. The format is that of
runtime/heapdump.go, Go 1.19 to 1.27; what comes behind the roots is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

_HEADER = b"go1.7 heap dump\n"
_OBJECT, _ROOT, _TYPE, _GOROUTINE, _FRAME, _PARAMETERS, _FINALIZER, _ITAB = range(1, 9)
_THREAD, _STATISTICS, _QUEUED, _DATA, _BSS, _DEFER, _PANIC = range(9, 16)
# Of the records that are not used: i for a number, s for a text.
_SKIPPED = {
    _TYPE: "iisi",
    _PARAMETERS: "iiiissi",
    _ITAB: "ii",
    _THREAD: "iii",
    _DEFER: "iiiiiii",
    _PANIC: "iiiiii",
}

Numbers = npt.NDArray[np.int64]


@dataclass
class HeapDump:
    """Objects by address, in order; pointers from them, and from roots.

    `edges` are pairs of indices of objects, `roots` has for each word of a root its address (0 on
    stacks and for finalizers) and the object to which it leads.
    """

    starts: Numbers
    sizes: Numbers
    edges: Numbers = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    roots: Numbers = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    def reached(self, roots: Numbers) -> set[int]:
        """The objects that are reached from the objects `roots`, they included."""
        below: dict[int, list[int]] = {}
        for source, target in self.edges.tolist():
            below.setdefault(source, []).append(target)
        new, seen = set(roots.tolist()), set(roots.tolist())
        while new:
            new = {target for source in new for target in below.get(source, ())} - seen
            seen |= new
        return seen

    def freed_without(self, start: int, end: int) -> set[int]:
        """The addresses of what is reached only by words of roots in [start, end)."""
        is_cut = (self.roots[:, 0] >= start) & (self.roots[:, 0] < end)
        freed = self.reached(self.roots[:, 1]) - self.reached(self.roots[~is_cut, 1])
        return {int(self.starts[index]) for index in freed}

    def find(self, addresses: Numbers) -> Numbers:
        """The object that has each address, -1 for none."""
        places = np.searchsorted(self.starts, addresses, side="right") - 1
        known = np.maximum(places, 0)
        is_there = (places >= 0) & (addresses - self.starts[known] < self.sizes[known])
        return np.where(is_there, places, -1)


class _Reader:
    def __init__(self, data: bytes) -> None:
        assert data.startswith(_HEADER)
        self.data, self.at = data, len(_HEADER)

    def number(self) -> int:
        value = shift = 0
        while True:
            octet = self.data[self.at]
            self.at += 1
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                return value
            shift += 7

    def text(self) -> bytes:
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at]

    def fields(self) -> list[int]:
        offsets = []
        while self.number():  # 1 for a pointer, 0 for the end
            offsets.append(self.number())
        return offsets

    def skip(self, form: str) -> None:
        for kind in form:
            _ = self.number() if kind == "i" else self.text()


def _pointers(words: bytes, offsets: list[int]) -> list[int]:
    return [int.from_bytes(words[offset : offset + 8], "little") for offset in offsets]


def _records(reader: _Reader) -> Iterator[tuple[int, int, list[int], list[int], int]]:
    """Kind, address, offsets of pointers, pointers, and size: objects, data, frames, finalizers."""
    while (kind := reader.number()) != _STATISTICS:
        if kind in _SKIPPED:
            reader.skip(_SKIPPED[kind])
        elif kind in (_OBJECT, _DATA, _BSS):
            address, words = reader.number(), reader.text()
            offsets = reader.fields()
            yield kind, address, offsets, _pointers(words, offsets), len(words)
        elif kind == _GOROUTINE:
            address = reader.number()
            reader.skip("iiiiiiisiiii")
            yield kind, 0, [0], [address], 0
        elif kind == _FRAME:
            reader.skip("iii")
            words = reader.text()
            reader.skip("iiis")
            offsets = reader.fields()
            yield kind, 0, offsets, _pointers(words, offsets), len(words)
        elif kind in (_FINALIZER, _QUEUED):
            address, function, *_ = [reader.number() for _ in range(5)]
            yield kind, address, [0], [function], 0
        else:
            assert kind == _ROOT, kind
            reader.text()
            yield kind, 0, [0], [reader.number()], 0


def heap_dump(path: Path) -> HeapDump:
    """The dump in a file."""
    objects: list[tuple[int, int]] = []
    froms: list[tuple[int, int]] = []
    roots: list[tuple[int, int]] = []
    finalized: list[int] = []
    for kind, address, offsets, pointers, size in _records(_Reader(path.read_bytes())):
        if kind == _OBJECT:
            objects.append((address, size))
            froms += [(address, pointer) for pointer in pointers]
            continue
        if kind in (_FINALIZER, _QUEUED):
            finalized.append(address)
            address = 0
        is_data = kind in (_DATA, _BSS)
        roots += [
            (address + offset if is_data else 0, pointer)
            for offset, pointer in zip(offsets, pointers, strict=True)
        ]
    rows = np.array(sorted(objects), np.int64)
    dump = HeapDump(rows[:, 0], rows[:, 1])
    dump.edges = _found(dump, np.array(froms, np.uint64), both=True)
    dump.roots = _found(dump, np.array(roots, np.uint64), both=False)
    # A finalizer keeps what its object refers to, not the object.
    kept = np.isin(dump.edges[:, 0], dump.find(np.array(finalized, np.int64)))
    of_finalizers = np.stack([np.zeros(int(kept.sum()), np.int64), dump.edges[kept, 1]], axis=1)
    dump.roots = np.concatenate([dump.roots, of_finalizers])
    return dump


def _found(dump: HeapDump, rows: npt.NDArray[np.uint64], *, both: bool) -> Numbers:
    """The rows whose second number is the address of an object, with its index in its place."""
    rows = rows[rows[:, 1] < np.uint64(1 << 63)]
    firsts, targets = rows[:, 0].astype(np.int64), dump.find(rows[:, 1].astype(np.int64))
    if both:
        firsts = dump.find(firsts)
    return np.stack([firsts, targets], axis=1)[targets >= 0]
