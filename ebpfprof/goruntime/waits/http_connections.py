"""The connections of the HTTP clients of a target, by transport and host, read from memory.

Each HTTP/1 connection has a goroutine in writeLoop, which waits for the channels writech and
closech: the pointer on that stack to an object that has both is its persistConn, which has its
Transport and its host (net/http/transport.go, Go 1.19 to 1.27).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.pools import HttpPool

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.waits.object_fields import ObjectFields

WRITER: Final = "net/http.(*persistConn).writeLoop"
_CONNECTION: Final = "http.persistConn"
_TRANSPORT: Final = "http.Transport"
_LIMIT: Final = "MaxConnsPerHost"
_ADDRESS: Final = 32  # of the host in a connectMethodKey, behind two other strings
_MAX_LIMIT: Final = 1 << 32


class HttpConnections:
    """Counts the connections of one target. Methods raise what those of `objects` do."""

    def __init__(self, objects: ObjectFields) -> None:
        self._objects = objects
        self._offsets: dict[str, int] | None = None
        self._open: Counter[tuple[int, str]] = Counter()

    def begin(self) -> None:
        """Forget all: their goroutines follow."""
        self._open.clear()

    def add(self, writer: Goroutine) -> None:
        """Add the connection whose goroutine in WRITER this is."""
        offsets, channels = self._layout(), [one.address for one in writer.channels]
        if not offsets:
            return
        wanted = {offsets["writech"]: channels, offsets["closech"]: channels}
        for connection in self._objects.with_words(writer, wanted)[:1]:
            transport = self._objects.word(connection + offsets["t"])
            host = self._objects.text(connection + offsets["cacheKey"] + _ADDRESS)
            self._open[transport, host] += 1

    def read(self) -> tuple[HttpPool, ...]:
        """The hosts with a limit, the connections to them, and the limits."""
        limits = self._objects.of(_TRANSPORT, _LIMIT)
        if not limits:
            return ()
        pools = (
            HttpPool(host, number, self._objects.word(transport + limits[_LIMIT].offset))
            for (transport, host), number in self._open.items()
        )
        return tuple(pool for pool in pools if 0 < pool.limit < _MAX_LIMIT)

    def _layout(self) -> dict[str, int]:
        if self._offsets is None:
            fields = self._objects.of(_CONNECTION, "t", "cacheKey", "writech", "closech")
            self._offsets = {name: field.offset for name, field in fields.items()}
        return self._offsets
