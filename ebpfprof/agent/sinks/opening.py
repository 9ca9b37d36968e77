"""The sinks of the settings: opened, kept or closed as the settings change."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.settings import RingSettings, SinkSettings
from ebpfprof.agent.sinks.folder import FolderDelivery
from ebpfprof.agent.sinks.http_client import HttpClient
from ebpfprof.agent.sinks.local_ring import RingDelivery
from ebpfprof.agent.sinks.otlp import OtlpBackend
from ebpfprof.agent.sinks.parca import ParcaBackend
from ebpfprof.agent.sinks.pyroscope import PyroscopeBackend
from ebpfprof.agent.sinks.queued import QueuedSink
from ebpfprof.agent.sinks.remote import Backend, RemoteDelivery
from ebpfprof.agent.sinks.ring_backlog import RingBacklog
from ebpfprof.agent.sinks.waiting import QueueBounds

if TYPE_CHECKING:
    from ebpfprof.agent.settings import Settings
    from ebpfprof.agent.sinks.sink import Item, Sink
    from ebpfprof.ring.writer import RingState

_BACKENDS: Final[dict[str, Callable[[], Backend]]] = {
    "otlp": OtlpBackend,
    "parca": ParcaBackend,
    "pyroscope": PyroscopeBackend,
}
RING: Final = "ring"
_PATIENCE_S: Final = 5.0
_MOST_HELD: Final = 1000
_Of = RingSettings | SinkSettings


class Sinks:
    """All sinks of an agent. Any thread may give to them."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._open: dict[_Of, Sink] = {}
        self._ring: RingDelivery | None = None
        self._ring_path: Path | None = None
        self._lock = threading.Lock()
        self._held: deque[Item] | None = None  # for sinks that are just being opened

    @property
    def all(self) -> list[Sink]:
        """Those that are open."""
        return list(self._open.values())

    def ring_state(self) -> RingState | None:
        """What the local ring holds; None without one."""
        return self._ring.state() if self._ring else None

    def use(self, settings: Settings) -> None:
        """Open what is new and close what is gone; what did not change goes on. May block.

        Raises what opening a sink raises; then the sinks are those that were open before.
        """
        wanted: list[_Of] = [settings.ring] if settings.ring.enabled else []
        wanted += settings.sinks
        before = list(self._open)
        kept = {each: self._open[each] for each in wanted if each in self._open}
        if list(kept) == before == wanted:
            return
        ring_path = Path(settings.ring.path) if settings.ring.enabled else None
        gone = [sink for each, sink in self._open.items() if each not in kept]
        with self._lock:
            self._open, self._held = kept, deque(maxlen=_MOST_HELD)
        _close(gone)  # first: two can't hold the same ring
        try:
            opened = self._opened([each for each in wanted if each not in kept])
        except BaseException:
            self._add(before, self._opened([each for each in before if each not in kept]))
            raise
        self._ring_path = ring_path
        self._add(wanted, opened)

    def give(self, item: Item) -> None:
        """Give an item to each sink."""
        with self._lock:
            sinks = self.all
            if self._held is not None:
                self._held.append(item)
        for sink in sinks:
            sink.take(item)

    def close(self) -> None:
        """Let all sinks deliver what waits for some seconds, and close them."""
        closing, self._open = self.all, {}
        _close(closing)
        self._ring = None

    def _add(self, order: Sequence[_Of], opened: dict[_Of, Sink]) -> None:
        """Add sinks that were opened, with what came meanwhile."""
        with self._lock:
            there = self._open | opened
            self._open = {each: there[each] for each in order}
            held, self._held = self._held or (), None
        for sink in opened.values():
            for item in held:
                sink.take(item)

    def _opened(self, wanted: Sequence[_Of]) -> dict[_Of, Sink]:
        """Open sinks: all of them or, if it raises, none."""
        found: dict[_Of, Sink] = {}
        try:
            for each in wanted:
                found[each] = self._opened_one(each)
        except BaseException:
            _close(list(found.values()))
            raise
        return found

    def _opened_one(self, settings: _Of) -> Sink:
        if isinstance(settings, RingSettings):
            self._ring = RingDelivery(settings)
            return QueuedSink(RING, self._ring, tell=self._tell)
        bounds = QueueBounds(settings.queue_bytes, settings.queue_age)
        if settings.type == "folder":
            return QueuedSink(settings.name, FolderDelivery(settings.path), bounds, tell=self._tell)
        backend = _BACKENDS[settings.type]()
        return QueuedSink(
            settings.name,
            RemoteDelivery(HttpClient(settings, backend.path), backend),
            bounds,
            tell=self._tell,
            backlog=RingBacklog(lambda: self._ring_path),
            only_windows=True,
        )


def _close(sinks: Sequence[Sink]) -> None:
    if sinks:
        with ThreadPoolExecutor(len(sinks)) as pool:
            list(pool.map(lambda sink: sink.close(_PATIENCE_S), sinks))
