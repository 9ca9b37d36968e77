"""The sinks of the settings: opened, kept or closed as the settings change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ebpfprof.agent.sinks.folder import FolderDelivery
from ebpfprof.agent.sinks.queued import Bounds, QueuedSink

if TYPE_CHECKING:
    from ebpfprof.agent.settings import Settings, SinkSettings
    from ebpfprof.agent.sinks.sink import Delivery, Item, Sink

_KINDS: dict[str, Callable[[SinkSettings], Delivery]] = {
    "folder": lambda settings: FolderDelivery(settings.path),
}
_PATIENCE_S = 5.0


class Sinks:
    """All sinks of an agent. Any thread may give to them."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._open: dict[SinkSettings, Sink] = {}

    @property
    def all(self) -> list[Sink]:
        """Those that are open."""
        return list(self._open.values())

    def use(self, settings: Settings) -> None:
        """Open what is new and close what is gone; what did not change goes on. May block."""
        wanted = dict.fromkeys(settings.sinks)
        gone = [each for each in self._open if each not in wanted]
        new = {each: self._open.get(each) or self._opened(each) for each in wanted}
        closing = [self._open[each] for each in gone]
        self._open = new
        _close(closing)

    def give(self, item: Item) -> None:
        """Give an item to each sink."""
        for sink in self.all:
            sink.take(item)

    def close(self) -> None:
        """Let all sinks deliver what waits for some seconds, and close them."""
        closing, self._open = self.all, {}
        _close(closing)

    def _opened(self, settings: SinkSettings) -> Sink:
        delivery = _KINDS[settings.type](settings)
        bounds = Bounds(settings.queue_bytes, settings.queue_age)
        return QueuedSink(settings.name, delivery, bounds, tell=self._tell)


def _close(sinks: Iterable[Sink]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    found = list(sinks)
    if found:
        with ThreadPoolExecutor(len(found)) as pool:
            list(pool.map(lambda sink: sink.close(_PATIENCE_S), found))
