"""The list of buckets of Go's memory profile: their stacks, sizes, and where their sums are.

The runtime puts each new bucket before the others, once it is complete, and never changes or frees
one (runtime/mprof.go, newBucket and stkbucket, Go 1.19 to 1.27). So each is read once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

_WORD_BYTES: Final = 8
_ADDRESS_END: Final = 1 << 47
_OF_MEMORY: Final = 1  # memProfile, the bucket's type
_USUAL_STACK: Final = 40
_MAX_STACK: Final = 1 << 12  # GODEBUG=profstackdepth allows 1,024 (runtime/runtime1.go)
_MAX_SIZE_BYTES: Final = 1 << 47
MAX_BUCKETS: Final = 1 << 18
"""How many buckets we read."""


class BucketList:
    """The buckets of one target, oldest first.

    `stacks` has the return addresses of each, `sizes` the size of its objects in bytes, `records`
    the runtime address of its runtime.memRecord. `is_cut`: there are more. `corrupt` is 1 if the
    list leads to something that is no bucket: what is behind it is missing.
    """

    def __init__(self, memory: Memory, layout: RuntimeLayout, head: int) -> None:
        self._memory, self._head = memory, head
        self._offsets = {
            name: layout.offset("bucket", name) for name in ("allnext", "typ", "size", "nstk")
        }
        self._header = layout.size("bucket")
        self._newest = 0
        self.stacks: list[tuple[int, ...]] = []
        self.sizes: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.records: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.is_cut = False
        self.corrupt = 0

    def update(self) -> None:
        """Read the buckets that are new. Raises UnreadableMemory or TargetGone."""
        newest = self._word(self._memory.read(self._head, _WORD_BYTES), 0)
        stacks: list[tuple[int, ...]] = []
        sizes: list[int] = []
        records: list[int] = []
        at, seen = newest, set[int]()
        while at and at != self._newest:
            if len(self.stacks) + len(stacks) >= MAX_BUCKETS:
                self.is_cut = True
                break
            bucket = self._bucket(at) if at not in seen else None
            if bucket is None:
                self.corrupt = 1
                break
            seen.add(at)
            following, size, stack = bucket
            stacks.append(stack)
            sizes.append(size)
            records.append(at + self._header + _WORD_BYTES * len(stack))
            at = following
        self._newest = newest
        self.stacks += reversed(stacks)
        self.sizes = np.concatenate([self.sizes, np.array(sizes[::-1], np.int64)])
        self.records = np.concatenate([self.records, np.array(records[::-1], np.uint64)])

    def _bucket(self, at: int) -> tuple[int, int, tuple[int, ...]] | None:
        """The next bucket, the size and the stack of the bucket there; None if it is not one."""
        if at % _WORD_BYTES or not 0 < at < _ADDRESS_END:
            return None
        try:
            data = self._memory.read(at, self._header + _WORD_BYTES * _USUAL_STACK)
        except UnreadableMemory:  # it may end where the memory ends
            try:
                data = self._memory.read(at, self._header)
            except UnreadableMemory:
                return None
        following, kind, size, depth = (
            self._word(data, offset) for offset in self._offsets.values()
        )
        if kind != _OF_MEMORY or not 0 < depth <= _MAX_STACK or size > _MAX_SIZE_BYTES:
            return None
        end = self._header + _WORD_BYTES * depth
        if end > len(data):
            try:
                data = self._memory.read(at, end)
            except UnreadableMemory:
                return None
        return following, size, struct.unpack_from(f"<{depth}Q", data, self._header)

    @staticmethod
    def _word(data: bytes, offset: int) -> int:
        return int.from_bytes(data[offset : offset + _WORD_BYTES], "little")
