"""The semaphores of golang.org/x/sync/semaphore of a target, read from memory.

A goroutine that waits in Acquire is in the list of its semaphore, whose elements point back to that
list (container/list/list.go, Go 1.19 to 1.27).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.profile.pools import Semaphore

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.waits.object_fields import ObjectFields

ACQUIRE: Final = "golang.org/x/sync/semaphore.(*Weighted).Acquire"
_TYPE: Final = "semaphore.Weighted"
_FIELDS: Final = ("size", "cur", "waiters")
# A List is an Element, its root, and a length; an Element begins with next, prev and list.
_LIST: Final = 16
_LENGTH: Final = 40
_MAX_COUNT: Final = 1 << 40


class Semaphores:
    """The semaphores of one target that were found. Methods raise what those of `objects` do."""

    def __init__(self, objects: ObjectFields) -> None:
        self._objects = objects
        self._known: dict[int, None] = {}
        self._offsets: dict[str, int] | None = None

    def add(self, waiter: Goroutine) -> None:
        """Add the one for which this goroutine waits in ACQUIRE."""
        offsets, objects = self._layout(), self._objects
        if not offsets:
            return
        pointers = objects.pointers(waiter)
        lists = pointers + np.uint64(offsets["waiters"])
        first = objects.words(lists)
        # The root of an empty list points to itself, and to no list.
        back = objects.words(first + np.uint64(_LIST))
        is_list = (first != 0) & (first != lists) & (back == lists)
        self._known |= dict.fromkeys(pointers[is_list].tolist()[:1])

    def read(self) -> tuple[Semaphore, ...]:
        """Their states now; those that make no sense are left out."""
        return tuple(one for address in self._known if (one := self._semaphore(address)))

    def _layout(self) -> dict[str, int]:
        if self._offsets is None:
            fields = self._objects.of(_TYPE, *_FIELDS)
            self._offsets = {name: field.offset for name, field in fields.items()}
        return self._offsets

    def _semaphore(self, address: int) -> Semaphore | None:
        offsets, word = self._layout(), self._objects.word
        size, used = word(address + offsets["size"]), word(address + offsets["cur"])
        waiting = word(address + offsets["waiters"] + _LENGTH)
        if max(size, waiting) > _MAX_COUNT or used > size:
            return None
        return Semaphore(address, size, used, waiting)
