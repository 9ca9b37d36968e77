"""The sinks of the settings: opened, kept or closed as the settings change."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.settings import REMOTE, RingSettings, SinkSettings
from ebpfprof.agent.sinks.folder import FolderDelivery
from ebpfprof.agent.sinks.local_ring import RingDelivery
from ebpfprof.agent.sinks.queued import HandedOver, QueuedSink
from ebpfprof.agent.sinks.ring_backlog import RingBacklog
from ebpfprof.agent.sinks.waiting import QueueBounds
from ebpfprof.profile.service import ServiceFindings, ServiceWindow

if TYPE_CHECKING:
    from ebpfprof.agent.settings import Settings
    from ebpfprof.agent.sinks.sink import Item
    from ebpfprof.ring.writer import RingState

RING: Final = "ring"
_PATIENCE_S: Final = 5.0
_MOST_HELD: Final = 1000
_Of = RingSettings | SinkSettings
_Left = Mapping[_Of, HandedOver]


class Sinks:
    """All sinks of an agent. Any thread may give to them."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._open: dict[_Of, QueuedSink] = {}
        self._ring: RingDelivery | None = None
        self._ring_path: Path | None = None
        self._catch_up = 1.0
        self._lock = threading.Lock()
        self._held: deque[Item] | None = None  # for sinks that are being opened

    @property
    def all(self) -> list[QueuedSink]:
        """The open sinks."""
        return list(self._open.values())

    def ring_state(self) -> RingState | None:
        """The state of the local ring; None without one."""
        return self._ring.state() if self._ring else None

    def use(self, settings: Settings) -> None:
        """Open new sinks and close removed ones; unchanged ones continue. May block.

        Raises what opening a sink raises; then the previous sinks are open.
        """
        wanted: list[_Of] = [settings.ring] if settings.ring.enabled else []
        wanted += settings.sinks
        before = list(self._open)
        kept = {one: self._open[one] for one in wanted if one in self._open}
        if list(kept) == before == wanted:
            return
        ring_path = Path(settings.ring.path) if settings.ring.enabled else None
        self._catch_up = _catch_up_share(settings)
        gone = {one: sink for one, sink in self._open.items() if one not in kept}
        with self._lock:
            self._open, self._held = kept, deque(maxlen=_MOST_HELD)
        left = _handed_over(gone, wanted)
        # First: two sinks can't have the same ring open.
        _close([sink for one, sink in gone.items() if one not in left])
        try:
            opened = self._opened([one for one in wanted if one not in kept])
        except BaseException:  # also Ctrl-C: open the previous sinks again
            self._add(before, self._opened([one for one in before if one not in kept]), left)
            raise
        self._ring_path = ring_path
        self._ring = self._ring if ring_path else None
        self._add(wanted, opened, left)

    def give(self, item: Item) -> None:
        """Pass an item to each sink."""
        with self._lock:  # until all have it: a sink that is replaced now would lose it
            if self._held is not None:
                self._held.append(item)
            for sink in self.all:
                sink.take(item)

    def close(self) -> None:
        """Close all sinks; they have a few seconds to deliver their queues."""
        closing, self._open = self.all, {}
        _close(closing)
        self._ring = None

    def _add(self, order: Sequence[_Of], opened: dict[_Of, QueuedSink], left: _Left) -> None:
        """Add opened sinks, with the queues of their predecessors and the items held meanwhile."""
        for before, handed in left.items():
            for settings, sink in opened.items():
                if _is_successor(settings, before):
                    sink.take_over(handed)
        with self._lock:
            sinks = self._open | opened
            self._open = {settings: sinks[settings] for settings in order}
            held, self._held = self._held or (), None
        for sink in opened.values():
            for item in held:
                sink.take(item)

    def _opened(self, wanted: Sequence[_Of]) -> dict[_Of, QueuedSink]:
        """Open sinks: all, or none if it raises."""
        sinks: dict[_Of, QueuedSink] = {}
        try:
            for settings in wanted:
                sinks[settings] = self._opened_one(settings)
        except BaseException:  # also Ctrl-C: a sink without an owner must not stay open
            _close(list(sinks.values()))
            raise
        return sinks

    def _opened_one(self, settings: _Of) -> QueuedSink:
        if isinstance(settings, RingSettings):
            self._ring = RingDelivery(settings)
            return QueuedSink(RING, self._ring, notify=self._notify)
        bounds = QueueBounds(settings.queue_bytes, settings.queue_age)
        if settings.type == "folder":
            return QueuedSink(
                settings.name, FolderDelivery(settings.path), bounds, notify=self._notify
            )
        # Importing urllib3 takes about 50 ms, so only agents that need it import it.
        from ebpfprof.agent.sinks.backends import remote_delivery

        return QueuedSink(
            settings.name,
            remote_delivery(settings),
            bounds,
            notify=self._notify,
            backlog=RingBacklog(lambda: self._ring_path),
            takes=(ServiceWindow, ServiceFindings) if settings.type == "otlp" else (ServiceWindow,),
            catch_up=self._catch_up,
        )


def _is_successor(settings: _Of, before: _Of) -> bool:
    """Whether a sink replaces another: the same backend with other settings."""
    if isinstance(settings, RingSettings) or isinstance(before, RingSettings):
        return False
    is_same = (settings.name, settings.type) == (before.name, before.type)
    return is_same and settings.type in REMOTE


def _catch_up_share(settings: Settings) -> float:
    """The share of a processor that a sink may use to catch up after its backend was down.

    All sinks together get a quarter of the node's budget: with more, recording would have to pause.
    """
    backends = max(1, sum(sink.type in REMOTE for sink in settings.sinks))
    return settings.max_node_overhead / 100 * (os.cpu_count() or 1) / 4 / backends


def _handed_over(gone: Mapping[_Of, QueuedSink], wanted: Sequence[_Of]) -> _Left:
    """The queues of sinks that others replace: correcting an address must not lose windows."""
    leaving = {
        settings: sink
        for settings, sink in gone.items()
        if any(_is_successor(other, settings) for other in wanted)
    }
    if not leaving:
        return {}
    with ThreadPoolExecutor(len(leaving)) as pool:
        handed = pool.map(lambda sink: sink.hand_over(_PATIENCE_S), leaving.values())
        return dict(zip(leaving, handed, strict=True))


def _close(sinks: Sequence[QueuedSink]) -> None:
    if sinks:
        with ThreadPoolExecutor(len(sinks)) as pool:
            list(pool.map(lambda sink: sink.close(_PATIENCE_S), sinks))
