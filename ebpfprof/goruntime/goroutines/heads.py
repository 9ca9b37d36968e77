"""The heads of all runtime.g of a target, read in few pieces: neighbours in memory together.

A piece costs the kernel some 300 ns, copying a runtime.g 40 ns. The runtime allocates them side by
side, so a thousand are some sixty pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.memory.records import record
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.globals import allgs_address

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

MAX_GOROUTINES: Final = 1 << 22
"""We read no more of one process."""
_MAX_GAP_BYTES: Final = 2048  # between two neighbours
_MAX_PIECES: Final = 1024  # UIO_MAXIOV
_MAX_CHUNK_BYTES: Final = 1 << 22
_PIECE_BITS: Final = np.uint64(20)  # a piece begins and ends within so many bytes
_ATTEMPTS: Final = 8
GOID_SHIFT: Final = 24
"""Where in Heads.waits the goid begins; below it are trackingSeq, waitreason and the status."""
_FIELDS: Final = (
    ("status", "atomicstatus", "<u4"),
    ("goid", "goid", "<u8"),
    ("reason", "waitreason", "u1"),
    ("sequence", "trackingSeq", "u1"),
    ("sp", "sched.sp", "<u8"),
    ("pc", "sched.pc", "<u8"),
    ("bp", "sched.bp", "<u8"),
    ("hi", "stack.hi", "<u8"),
)


@dataclass(frozen=True, slots=True)
class Heads:
    """An element for each runtime.g, in the order of runtime.allgs, which only grows.

    `waits` tells goroutines and what they do apart: goid, g.trackingSeq, g.waitreason and
    g.atomicstatus without the bit _Gscan, in one number. `sps`, `pcs` and `bps` are those of
    g.sched, `his` the ends of the stacks. All are 0 where nothing could be read. `beyond` counts
    those that were not read.
    """

    addresses: npt.NDArray[np.uint64]
    waits: npt.NDArray[np.uint64]
    sps: npt.NDArray[np.uint64]
    pcs: npt.NDArray[np.uint64]
    bps: npt.NDArray[np.uint64]
    his: npt.NDArray[np.uint64]
    beyond: int

    @property
    def statuses(self) -> npt.NDArray[np.uint64]:
        """g.atomicstatus without the bit _Gscan."""
        return self.waits & np.uint64(0xFF)


def wait_of(status: int, reason: int, sequence: int, goid: int) -> int:
    """An element of Heads.waits."""
    return (goid << GOID_SHIFT | sequence << 16 | reason << 8 | status & 0xFF) & 0xFFFFFFFFFFFFFFFF


def waits_of(
    status: npt.NDArray[np.uint64],
    reason: npt.NDArray[np.uint64],
    sequence: npt.NDArray[np.uint64],
    goid: npt.NDArray[np.uint64],
) -> npt.NDArray[np.uint64]:
    """Heads.waits of these fields; what lies above them in their words is left out."""
    byte = np.uint64(0xFF)
    waits = goid << np.uint64(GOID_SHIFT)
    waits |= status & byte
    waits |= (reason & byte) << np.uint64(8)
    waits |= (sequence & byte) << np.uint64(16)
    return waits


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Pieces that one system call reads, and the places of the runtime.g in what it reads."""

    pieces: npt.NDArray[np.uint64]
    size: int
    slots: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


class HeadReader:
    """Reads the heads of one target again and again."""

    def __init__(self, go: GoTarget, memory: Memory, *, most: int = MAX_GOROUTINES) -> None:
        """Read so many at most. Raises GoTableError if we find no list of goroutines."""
        self._most = most
        self._memory, self._pid = memory, go.target.pid
        self._allgs = allgs_address(go.binary) + go.load_bias
        layout = go.binary.layout
        self._kind = record(layout, "g", _FIELDS)
        self._words, self._shifts = _words_of(layout)
        self._list: tuple[int, int] = 0, 0
        self._addresses = np.zeros(0, np.uint64)
        self._chunks: list[_Chunk] = []
        self._beyond = 0
        self._buffer = np.zeros(0, np.uint8)

    def read(self) -> Heads:
        """The heads now. Raises TargetGone or UnreadableMemory."""
        self._refresh()
        table = np.zeros((len(_FIELDS), len(self._addresses)), np.uint64)
        for chunk in self._chunks:
            self._read_chunk(chunk, table)
        self._slice()  # the calls took a pid: raises if it was reused
        status, goid, reason, sequence, sps, pcs, bps, his = table
        return Heads(
            self._addresses,
            waits_of(status, reason, sequence, goid),
            sps,
            pcs,
            bps,
            his,
            self._beyond,
        )

    def _refresh(self) -> None:
        """Read runtime.allgs again if it has grown (runtime/proc.go, allgadd)."""
        for _ in range(_ATTEMPTS):
            pointer, length, capacity = self._slice()
            if (pointer, length) == self._list:
                return
            if length > capacity:
                continue  # it is growing
            count = min(length, self._most)
            try:
                data = self._memory.read(pointer, 8 * count)
            except UnreadableMemory:
                continue
            # A list that grew has moved, and the runtime may have overwritten the old one.
            if self._slice()[0] == pointer:
                self._list = pointer, length
                addresses = np.frombuffer(data, np.uint64)
                self._addresses = addresses[(addresses != 0) & (addresses % 8 == 0)]
                self._beyond = length - count
                self._plan()
                return
        raise UnreadableMemory(
            f"The list of goroutines of process {self._pid} makes no sense: the program kept "
            "changing it, or overwrote it. Try again."
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

    def _read_chunk(self, chunk: _Chunk, table: npt.NDArray[np.uint64]) -> None:
        local = np.array([self._buffer.ctypes.data, chunk.size], np.uint64)
        count = self._memory.read_pieces(
            local.ctypes.data, 1, chunk.pieces.ctypes.data, len(chunk.pieces)
        )
        if count != chunk.size:  # some piece can't be read: find out which
            records = self._memory.read_records(self._addresses[chunk.slots], self._kind)
            for row, (name, _, _) in enumerate(_FIELDS):
                table[row, chunk.slots] = records[name]
            return
        # One gather for all fields: of few goroutines, numpy's calls take most of the time.
        there = self._buffer.view(np.uint64)
        table[:, chunk.slots] = there[self._words + (chunk.offsets >> 3)] >> self._shifts


def _words_of(layout: RuntimeLayout) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """In which word of a runtime.g each field is, and at which bit of it; a column of each."""
    offsets = np.array([layout.offset("g", field) for _, field, _ in _FIELDS])
    return (offsets // 8)[:, None], (offsets % 8 * 8).astype(np.uint64)[:, None]


def _chunk(
    pieces: npt.NDArray[np.uint64],
    starts: npt.NDArray[np.uint64],
    order: npt.NDArray[np.int64],
    first: int,
    last: int,
) -> _Chunk:
    inside = starts[first : last + 1]
    begins = np.concatenate(([0], np.cumsum(pieces[:, 1])[:-1])).astype(np.uint64)
    number = np.searchsorted(pieces[:, 0], inside, "right") - 1
    offsets = (begins[number] + inside - pieces[number, 0]).astype(np.int64)
    return _Chunk(
        np.ascontiguousarray(pieces), int(pieces[:, 1].sum()), order[first : last + 1], offsets
    )
