"""The pools of package database/sql of a target, read from memory.

Each sql.DB has a goroutine in connectionOpener, which waits for its channel openerCh: the pointer
on that stack to an object that has this channel there is the DB (database/sql/sql.go, Go 1.19 to
1.27).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.waits.object_fields import WORD_BYTES
from ebpfprof.profile.pools import SqlPool

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.waits.object_fields import ObjectFields

OPENER: Final = "database/sql.(*DB).connectionOpener"
_OPENER_CAPACITY: Final = 1_000_000  # connectionRequestQueueSize
_MAX_COUNT: Final = 1 << 40
_TYPE: Final = "sql.DB"
_NUMBERS: Final = {
    "open": "numOpen",
    "limit": "maxOpen",
    "waits": "waitCount",
    "waited_ns": "waitDuration",
}
_OTHERS: Final = ("openerCh", "freeConn", "connRequests")


class Databases:
    """The sql.DB of one target that were found. Methods raise what those of `objects` do."""

    def __init__(self, objects: ObjectFields) -> None:
        self._objects = objects
        self._known: dict[int, None] = {}
        self._offsets: dict[str, int] | None = None
        self._has_set = False

    def add(self, opener: Goroutine) -> None:
        """Add the one whose goroutine in OPENER this is."""
        offsets = self._layout()
        channels = [one.address for one in opener.channels if one.capacity == _OPENER_CAPACITY]
        if offsets and channels:
            pools = self._objects.with_words(opener, {offsets["openerCh"]: channels})
            self._known |= dict.fromkeys([one for one in pools if self._pool(one)][:1])

    def read(self) -> tuple[SqlPool, ...]:
        """What they count now; those that make no sense are left out."""
        return tuple(pool for address in self._known if (pool := self._pool(address)))

    def _layout(self) -> dict[str, int]:
        """The offsets of the fields that we read; {} if this version has others."""
        if self._offsets is None:
            fields = self._objects.of(_TYPE, *_NUMBERS.values(), *_OTHERS)
            self._offsets = {name: field.offset for name, field in fields.items()}
            if fields:
                # A set with a slice from Go 1.23 on; before a map.
                requests = self._objects.types.at(fields["connRequests"].type)
                self._has_set = requests is not None and bool(requests.fields)
        return self._offsets

    def _pool(self, address: int) -> SqlPool | None:
        offsets, word = self._layout(), self._objects.word
        read_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        numbers = {name: word(address + offsets[field]) for name, field in _NUMBERS.items()}
        free = word(address + offsets["freeConn"] + WORD_BYTES)
        waiting = self._waiting(address + offsets["connRequests"])
        counts = [waiting, *(numbers[name] for name in ("open", "limit", "waits"))]
        if max(counts) > _MAX_COUNT or free > numbers["open"]:
            return None  # it is being changed, or is another object now
        return SqlPool(address=address, free=free, waiting=waiting, read_ns=read_ns, **numbers)

    def _waiting(self, requests: int) -> int:
        word = self._objects.word
        if self._has_set:
            return word(requests + WORD_BYTES)  # the length of its slice
        return word(at) if (at := word(requests)) else 0  # a map begins with its length
