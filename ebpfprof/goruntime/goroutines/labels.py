"""The labels that a program gives its goroutines (runtime/pprof), read from the target's memory.

bpf/common/labels.h reads them in the same way. It describes the layout, and how much of a set, a
key and a value we keep.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ebpfprof.process.memory import Memory, UnreadableMemory
from ebpfprof.profile.model import Label
from symbolizer import RuntimeLayout

CUT: Final = "..."
"""The end of a key or a value that was cut."""
LEFT_OUT: Final = "labels_left_out"
"""The key of the label that says how many more labels the goroutine had."""

_MAX_LABELS: Final = 8
_KEY_ROOM: Final = 64
_VALUE_ROOM: Final = 128
_MAX_STEPS: Final = 20
_MAX_COUNT: Final = 4096
_BUCKET_SLOTS: Final = 8
_BUCKET_BYTES: Final = 272
_MIN_TOP_HASH: Final = 5

_WORD: Final = struct.Struct("<Q")
_SLICE: Final = struct.Struct("<QQ")  # where, how many
_STRING: Final = struct.Struct("<QQ")  # where, how many bytes
_PAIR: Final = struct.Struct("<4Q")  # two strings
_MAP: Final = struct.Struct("<QxB6xQ")  # runtime.hmap: how many, log2 of the buckets, where


class _String(NamedTuple):
    """What we read of a Go string, and how long it is in bytes."""

    data: bytes
    length: int

    def whole(self) -> bytes:
        """The string, with CUT at its end if that is missing."""
        return self.data + (CUT.encode() if self.length > len(self.data) else b"")


class _Room(NamedTuple):
    """How much of a set we read: labels, bytes of keys and values, and steps through a map."""

    labels: int
    key_bytes: int
    value_bytes: int
    steps: int


_KEPT: Final = _Room(_MAX_LABELS, _KEY_ROOM, _VALUE_ROOM, _MAX_STEPS)
_WHOLE: Final = _Room(256, 1 << 10, 1 << 12, 1 << 12)

_Pairs = list[tuple[_String, _String]]


def target_fields(layout: RuntimeLayout) -> dict[str, int]:
    """The fields that label_set of bpf/common/labels.h needs for a runtime of this layout."""
    return {
        "labels_offset": layout.offset("g", "labels"),
        "labels_in_slice": int(layout.labels_in_slice),
    }


def labels_of(pairs: Iterable[tuple[str, str]], count: int) -> tuple[Label, ...]:
    """The labels of a set, ordered by key. It has `count`, of which `pairs` has those we read."""
    ordered = sorted(pairs)
    labels = [Label(key, value) for key, value in ordered if key and value]
    if count > len(ordered):
        labels.append(Label(LEFT_OUT, str(count - len(ordered))))
    return tuple(labels)


def text(data: bytes, length: int) -> str:
    """A Go string of `length` bytes, of which `data` is what we kept; any bytes are allowed."""
    if length <= len(data):
        return data[:length].decode(errors="backslashreplace")
    # The incremental decoder leaves out a character that was cut in two.
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return decoder.decode(data) + CUT


class LabelReader:
    """Reads the labels of one target's goroutines."""

    def __init__(self, memory: Memory, layout: RuntimeLayout) -> None:
        self._memory = memory
        self._is_slice = layout.labels_in_slice

    def read(self, labels: int) -> tuple[Label, ...]:
        """The labels at a runtime.g.labels pointer, as profilers.labels.label_sets returns them.

        Raises UnreadableMemory, also where there is something else than labels.
        """
        if not labels:
            return ()
        count, pairs = self._read(labels, _KEPT)
        return labels_of(((text(*key), text(*value)) for key, value in pairs), count)

    def read_if_there(self, labels: int) -> tuple[Label, ...] | None:
        """The same, or None where read() raises UnreadableMemory."""
        try:
            return self.read(labels)
        except UnreadableMemory:
            return None

    def pairs(self, labels: int) -> tuple[tuple[bytes, bytes], ...]:
        """All labels at a runtime.g.labels pointer that is not nil, in their own order.

        CUT ends what is longer than any real one. Raises UnreadableMemory as read() does.
        """
        _, pairs = self._read(labels, _WHOLE)
        return tuple((key.whole(), value.whole()) for key, value in pairs)

    def _read(self, labels: int, room: _Room) -> tuple[int, _Pairs]:
        return self._of_slice(labels, room) if self._is_slice else self._of_map(labels, room)

    def _of_slice(self, labels: int, room: _Room) -> tuple[int, _Pairs]:
        first, count = _SLICE.unpack(self._memory.read(labels, _SLICE.size))
        _check(count)
        data = self._memory.read(first, _PAIR.size * min(count, room.labels))
        return count, [self._pair(room, *strings) for strings in _PAIR.iter_unpack(data)]

    def _of_map(self, labels: int, room: _Room) -> tuple[int, _Pairs]:
        (address,) = _WORD.unpack(self._memory.read(labels, _WORD.size))
        if not address:
            return 0, []
        count, log2_buckets, buckets = _MAP.unpack(self._memory.read(address, _MAP.size))
        _check(count)
        pairs: _Pairs = []
        steps = room.steps
        for bucket in self._buckets(buckets, 1 << (log2_buckets & 15)):
            steps -= 1
            for slot in (i for i in range(_BUCKET_SLOTS) if bucket[i] >= _MIN_TOP_HASH):
                if steps > 0 and len(pairs) < room.labels:
                    steps -= 1
                    key = _STRING.unpack_from(bucket, _BUCKET_SLOTS + slot * _STRING.size)
                    value_at = _BUCKET_SLOTS + (_BUCKET_SLOTS + slot) * _STRING.size
                    value = _STRING.unpack_from(bucket, value_at)
                    pairs.append(self._pair(room, *key, *value))
            if steps <= 0:
                break
        return count, pairs

    def _buckets(self, first: int, count: int) -> Iterator[bytes]:
        """The buckets of a map, each followed by its overflow buckets."""
        for number in range(count):
            address = first + number * _BUCKET_BYTES
            while address:
                bucket = self._memory.read(address, _BUCKET_BYTES)
                yield bucket
                (address,) = _WORD.unpack_from(bucket, _BUCKET_BYTES - _WORD.size)

    def _pair(
        self, room: _Room, key: int, key_bytes: int, value: int, value_bytes: int
    ) -> tuple[_String, _String]:
        return (
            self._string(key, key_bytes, room.key_bytes),
            self._string(value, value_bytes, room.value_bytes),
        )

    def _string(self, address: int, length: int, room_bytes: int) -> _String:
        kept_bytes = min(length, room_bytes)
        self._memory.bring(address, kept_bytes)  # it may be in a page that is not mapped yet
        return _String(self._memory.read(address, kept_bytes), length)


def _check(count: int) -> None:
    if count > _MAX_COUNT:
        raise UnreadableMemory(f"{count} labels are too many: runtime.g.labels holds other data.")
