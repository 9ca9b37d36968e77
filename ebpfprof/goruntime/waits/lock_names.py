"""Names of locks of one target, by address."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.heap.heap_locks import HeapLocks
from symbolizer.locks.names import LockNames

if TYPE_CHECKING:
    from collections.abc import Collection

    from ebpfprof.goruntime.process import GoTarget
    from symbolizer.locks.names import Caller

_MAX_NAMES: Final = 256  # that we search for: each takes up to a few milliseconds


class LockNamer:
    """Finds the names of locks, each once."""

    def __init__(self, go: GoTarget) -> None:
        self._go = go
        self._finder, self._heap = LockNames(go.binary), HeapLocks(go)
        self._names: dict[int, str | None] = {}

    def name(self, address: int, kind: str, callers: Collection[Caller]) -> str | None:
        """The name of the lock at a runtime address, as first found; None without one.

        `kind` is its type: "sync.Mutex". `callers` are functions that locked it.
        """
        if address not in self._names:
            if len(self._names) >= _MAX_NAMES:
                return None
            linked = address - self._go.load_bias
            name = self._finder.variable(linked)
            if name is None:
                ordered = sorted(callers, key=attrgetter("function", "pc"))
                name = self._finder.field(ordered, kind)
                name = name or self._heap.name(address, ordered, kind)
            self._names[address] = name or self._finder.place(linked)
        return self._names[address]
