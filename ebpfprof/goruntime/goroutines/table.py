"""The runtime's table of goroutines, read again and again: columns by name.

The runtime allocates runtime.g side by side. Neighbours are read together: a piece costs the kernel
about 300 ns, copying a runtime.g 40 ns, and a thousand goroutines are about sixty pieces.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.fields import (
    FIELDS,
    GOID_SHIFT,
    IDENTITY,
    g_record,
    waits_of,
)
from ebpfprof.goruntime.goroutines.states import GONE
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.globals import allgs_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary
    from symbolizer.go.runtime_layout import RuntimeLayout

    Column = npt.NDArray[np.uint64]

MAX_GOROUTINES: Final = 1 << 22
"""We read no more of one process."""
_MAX_GAP_BYTES: Final = 2048  # between two neighbours
_MAX_PIECES: Final = 1024  # UIO_MAXIOV
_MAX_CHUNK_BYTES: Final = 1 << 22
_PIECE_BITS: Final = np.uint64(20)  # the first and last runtime.g of a piece share the bits above
_ATTEMPTS: Final = 9
PAUSE_S: Final = 0.001  # before the second attempt; each later pause is twice as long
_GOID_SHIFT: Final = np.uint64(GOID_SHIFT)
_STATUS: Final = np.uint64(0xFF)
_IS_GONE: Final = np.isin(np.arange(1 << 8), GONE)


@dataclass(frozen=True, slots=True)
class Heads:
    """An element for each runtime.g, in the order of runtime.allgs, which only grows.

    `waits` are numbers of fields.wait_of. `columns` are those that the reader asked for, by the
    names of fields.FIELDS: words, of which only the field's own bits count. All are 0 where nothing
    could be read. `beyond` counts those that were not read.
    """

    addresses: Column
    waits: Column
    columns: Mapping[str, Column]
    beyond: int

    @property
    def statuses(self) -> Column:
        """g.atomicstatus without the bit _Gscan."""
        return self.waits & _STATUS

    @property
    def is_there(self) -> npt.NDArray[np.bool_]:
        """Which of these are goroutines; the others are dead, or have not begun."""
        there: npt.NDArray[np.bool_] = ~_IS_GONE[self.statuses] & (self.waits >> _GOID_SHIFT != 0)
        return there

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Pieces that one system call reads, and the places of the runtime.g in what it reads."""

    pieces: Column
    size: int
    slots: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


class GoroutineTable:
    """Reads the table of one target, any number of times."""

    def __init__(
        self,
        memory: Memory,
        binary: GoBinary,
        bias: int,
        *columns: str,
        most: int = MAX_GOROUTINES,
    ) -> None:
        """Read these columns, of `most` goroutines; the target runs `binary`, `bias` bytes higher.

        Raises GoTableError if the program has no list of goroutines that we find.
        """
        self._memory, self._most, self._names = memory, min(most, MAX_GOROUTINES), columns
        self._allgs = allgs_address(binary) + bias
        fields = (*IDENTITY, *columns)
        self._kind = g_record(binary.layout, *fields)
        self._words, self._shifts = _words_of(binary.layout, fields)
        self._list: tuple[int, int] = 0, 0
        self._addresses = np.zeros(0, np.uint64)
        self._chunks: list[_Chunk] = []
        self._beyond = 0
        self._buffer = np.zeros(0, np.uint8)

    def read(self) -> Heads:
        """The table now. Raises TargetGone or UnreadableMemory."""
        self._refresh()
        table = np.zeros((len(self._words), len(self._addresses)), np.uint64)
        for chunk in self._chunks:
            self._read_chunk(chunk, table)
        self._slice()  # the calls took a pid: raises if it was reused
        status, goid, reason, sequence, *columns = table
        return Heads(
            self._addresses,
            waits_of(status, reason, sequence, goid),
            dict(zip(self._names, columns, strict=True)),
            self._beyond,
        )

    def count(self) -> int:
        """The number of runtime.g, dead ones included, which the runtime reuses.

        Raises TargetGone or UnreadableMemory.
        """
        return self._slice()[1]

    def _refresh(self) -> None:
        """Read runtime.allgs again if it has grown (runtime/proc.go, allgadd)."""
        for attempt in range(_ATTEMPTS):
            if attempt:  # it is growing
                pause_s = PAUSE_S * 2 ** (attempt - 1)
                time.sleep(pause_s)  # the thread that grows it may lack a processor
            pointer, length, capacity = self._slice()
            if (pointer, length) == self._list:
                return
            if length > capacity:
                continue
            count = min(length, self._most)
            try:
                data = self._memory.read(pointer, 8 * count)
            except UnreadableMemory:
                continue
            # A list that grew has moved, and the runtime may have overwritten the old one.
            if self._slice()[0] == pointer:
                addresses = np.frombuffer(data, np.uint64)
                addresses = addresses[(addresses != 0) & (addresses % 8 == 0)]
                if len(addresses) < len(self._addresses):
                    raise UnreadableMemory(
                        "The list of goroutines became shorter, which Go never does."
                    )
                self._list, self._addresses = (pointer, length), addresses
                self._beyond = length - count
                self._plan()
                return
        raise UnreadableMemory(
            f"The list of goroutines of process {self._memory.pid} makes no sense: the program "
            "kept changing it, or overwrote it. ebpfprof needs it for dump and --open, and to "
            "record in windows. Try again; if that does not help, record without --open and with "
            "--max-overhead 0."
        )

    def _slice(self) -> tuple[int, int, int]:
        pointer, length, capacity = np.frombuffer(self._memory.read(self._allgs, 24), np.uint64)
        return int(pointer), int(length), int(capacity)

    def _plan(self) -> None:
        """Put neighbours together into pieces, and pieces into chunks."""
        size = self._kind.itemsize
        order = np.argsort(self._addresses, kind="stable")
        starts = self._addresses[order]
        gaps = np.diff(starts)
        is_far = (gaps > size + _MAX_GAP_BYTES) | (np.diff(starts >> _PIECE_BITS) != 0)
        firsts = np.flatnonzero(np.append(True, is_far))
        lasts = np.append(firsts[1:], len(starts)) - 1
        self._chunks = []
        if not len(starts):
            return
        lengths = starts[lasts] - starts[firsts] + np.uint64(size)
        begin = 0
        while begin < len(firsts):
            room = np.cumsum(lengths[begin : begin + _MAX_PIECES])
            end = begin + max(1, int(np.searchsorted(room, _MAX_CHUNK_BYTES, "right")))
            pieces = np.stack((starts[firsts[begin:end]], lengths[begin:end]), axis=1)
            self._chunks.append(
                _chunk(pieces, starts, order, int(firsts[begin]), int(lasts[end - 1]))
            )
            begin = end
        largest = max(chunk.size for chunk in self._chunks)
        self._buffer = np.zeros(-(-largest // 8) * 8, np.uint8)

    def _read_chunk(self, chunk: _Chunk, table: Column) -> None:
        local = np.array([self._buffer.ctypes.data, chunk.size], np.uint64)
        count = self._memory.read_pieces(
            local.ctypes.data, 1, chunk.pieces.ctypes.data, len(chunk.pieces)
        )
        if count != chunk.size:  # some piece can't be read: find out which
            records = self._memory.read_records(self._addresses[chunk.slots], self._kind)
            for row, name in enumerate((*IDENTITY, *self._names)):
                table[row, chunk.slots] = records[name]
            return
        # One gather for all fields: of few goroutines, numpy's calls take most of the time.
        there = self._buffer.view(np.uint64)
        table[:, chunk.slots] = there[self._words + (chunk.offsets >> 3)] >> self._shifts


def _words_of(
    layout: RuntimeLayout, fields: tuple[str, ...]
) -> tuple[npt.NDArray[np.int64], Column]:
    """In which word of a runtime.g each field is, and at which bit of it; a column of each."""
    offsets = np.array([layout.offset("g", FIELDS[field][0]) for field in fields])
    return (offsets // 8)[:, None], (offsets % 8 * 8).astype(np.uint64)[:, None]


def _chunk(
    pieces: Column, starts: Column, order: npt.NDArray[np.int64], first: int, last: int
) -> _Chunk:
    inside = starts[first : last + 1]
    begins = np.concatenate(([0], np.cumsum(pieces[:, 1])[:-1])).astype(np.uint64)
    number = np.searchsorted(pieces[:, 0], inside, "right") - 1
    offsets = (begins[number] + inside - pieces[number, 0]).astype(np.int64)
    return _Chunk(
        np.ascontiguousarray(pieces), int(pieces[:, 1].sum()), order[first : last + 1], offsets
    )
