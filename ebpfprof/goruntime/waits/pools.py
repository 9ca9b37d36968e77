"""Pools of a target, found by the goroutines that belong to them, and read from memory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.waits.databases import OPENER, Databases
from ebpfprof.goruntime.waits.http_connections import WRITER, HttpConnections
from ebpfprof.goruntime.waits.object_fields import ObjectFields
from ebpfprof.goruntime.waits.semaphores import ACQUIRE, Semaphores
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.goroutines.frames import StackFrames
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.pools import HttpPool, Semaphore, SqlPool

_WAITS_FOR_HTTP: Final = "net/http.(*Transport).getConn"
_KINDS: Final = (OPENER, WRITER, ACQUIRE, _WAITS_FOR_HTTP)
_MOST: Final = 256  # goroutines of a kind, whose stacks are searched: about 50 us each


class PoolReader:
    """Finds the pools of one target, and reads them any number of times."""

    def __init__(self, go: GoTarget) -> None:
        objects = ObjectFields(go)
        self._databases, self._semaphores = Databases(objects), Semaphores(objects)
        self._http = HttpConnections(objects)

    def find(self, goroutines: Iterable[Goroutine], frames: StackFrames) -> None:
        """Add the pools to which these goroutines belong. Raises TargetGone or GoTableError.

        Connections of HTTP clients are counted only while goroutines wait for one.
        """
        members: dict[str, list[Goroutine]] = {kind: [] for kind in _KINDS}
        kinds: dict[tuple[int, ...], str] = {}
        for goroutine in goroutines:
            pcs = goroutine.pcs
            if not goroutine.is_parked or not pcs:
                continue
            if pcs not in kinds:
                names = {frame.function for frame in frames.of(pcs)}
                kinds[pcs] = next((kind for kind in _KINDS if kind in names), "")
            if kinds[pcs]:
                members[kinds[pcs]].append(goroutine)
        adding = [(OPENER, self._databases.add), (ACQUIRE, self._semaphores.add)]
        self._http.begin()
        if members[_WAITS_FOR_HTTP] and len(members[WRITER]) <= _MOST:
            adding.append((WRITER, self._http.add))
        for kind, add in adding:
            for goroutine in members[kind][:_MOST]:
                with suppress(UnreadableMemory):  # its stack has moved
                    add(goroutine)

    def databases(self) -> tuple[SqlPool, ...]:
        """The pools of database/sql that were found, now. Raises TargetGone."""
        return self._databases.read()

    def semaphores(self) -> tuple[Semaphore, ...]:
        """The semaphores that were found, now. Raises TargetGone."""
        return self._semaphores.read()

    def http(self) -> tuple[HttpPool, ...]:
        """The connections that were found last, to hosts with a limit. Raises TargetGone."""
        return self._http.read()
