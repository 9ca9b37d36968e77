"""The routes and peers of handlers: what their goroutines wait for, read again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.handlers import handler_in
from ebpfprof.profile.network_peers import NetworkPeers
from ebpfprof.profile.operations import operation_in
from ebpfprof.profile.routes import SeenPeers, SeenRoutes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.goroutines import DumpedGoroutine
    from ebpfprof.profile.handlers import Handler
    from ebpfprof.profile.model import Frame, PeerSamples

_MOST_GOROUTINES: Final = 2_000
"""Of programs with more, the first ones: a sample takes about 20 ms then."""
_MOST_STACKS: Final = 1 << 12
CLIENTS: Final = "its clients"


class HandlerSampler:
    """Samples what goroutines in handlers of one target wait for, and which requests they have."""

    def __init__(self, go: GoTarget) -> None:
        """Open the target's memory. Raises TargetGone, PermissionDenied or GoTableError."""
        self._dumper = GoroutineDumper(go, most=_MOST_GOROUTINES)
        self._dumper.prepare()
        self._seen, self._peers = SeenRoutes(), SeenPeers()
        # Stacks of waiting goroutines are mostly the same objects from sample to sample.
        self._handlers: dict[int, tuple[tuple[Frame, ...], Handler | None]] = {}

    @property
    def routes(self) -> Mapping[str, str]:
        """The routes by Handler.function, of all samples: see SeenRoutes.by_function."""
        return self._seen.by_function()

    @property
    def peers(self) -> tuple[PeerSamples, ...]:
        """The peers of handlers, named by Handler.function, of all samples."""
        return self._peers.all()

    def sample(self) -> None:
        """Take a sample. Raises TargetGone or GoTableError."""
        try:
            dump = self._dumper.dump_once(has_waits=True, has_requests=True)
        except UnreadableMemory:
            return  # the runtime has not begun yet, or its memory changed: the next sample may do
        peers = NetworkPeers(dump)
        for goroutine in dump.goroutines:
            handler = self._handler(goroutine)
            if handler is None or not handler.function:
                continue
            if goroutine.request:
                self._seen.add(handler.function, goroutine.goid, goroutine.request)
            operation = operation_in(goroutine.state, goroutine.frames)[0]
            if peer := peers.of(goroutine, operation, is_sure=True):
                is_client = peers.is_client(goroutine)
                self._peers.add(handler.function, operation, CLIENTS if is_client else peer)

    def _handler(self, goroutine: DumpedGoroutine) -> Handler | None:
        frames = goroutine.frames
        known = self._handlers.get(id(frames))
        if known is None:
            if len(self._handlers) >= _MOST_STACKS:
                self._handlers.clear()
            known = self._handlers[id(frames)] = frames, handler_in(frames)
        return known[1]
