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

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._open: dict[_Of, QueuedSink] = {}
        self._ring: RingDelivery | None = None
        self._ring_path: Path | None = None
        self._catch_up = 1.0
        self._lock = threading.Lock()
        self._held: deque[Item] | None = None  # for sinks that are just being opened

    @property
    def all(self) -> list[QueuedSink]:
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
        self._catch_up = _catch_up_share(settings)
        gone = {each: sink for each, sink in self._open.items() if each not in kept}
        with self._lock:
            self._open, self._held = kept, deque(maxlen=_MOST_HELD)
        left = _handed_over(gone, wanted)
        _close([sink for each, sink in gone.items() if each not in left])  # first: two can't hold
        try:  # the same ring
            opened = self._opened([each for each in wanted if each not in kept])
        except BaseException:  # whatever it is: the sinks are again those of before
            self._add(before, self._opened([each for each in before if each not in kept]), left)
            raise
        self._ring_path = ring_path
        self._ring = self._ring if ring_path else None
        self._add(wanted, opened, left)

    def give(self, item: Item) -> None:
        """Give an item to each sink."""
        with self._lock:  # until all have it: a sink that is replaced meanwhile would lose it
            if self._held is not None:
                self._held.append(item)
            for sink in self.all:
                sink.take(item)

    def close(self) -> None:
        """Let all sinks deliver what waits for some seconds, and close them."""
        closing, self._open = self.all, {}
        _close(closing)
        self._ring = None

    def _add(self, order: Sequence[_Of], opened: dict[_Of, QueuedSink], left: _Left) -> None:
        """Add sinks that were opened, with what waited for those before them and came meanwhile."""
        for before, handed in left.items():
            for each, sink in opened.items():
                if _is_successor(each, before):
                    sink.take_over(handed)
        with self._lock:
            there = self._open | opened
            self._open = {each: there[each] for each in order}
            held, self._held = self._held or (), None
        for sink in opened.values():
            for item in held:
                sink.take(item)

    def _opened(self, wanted: Sequence[_Of]) -> dict[_Of, QueuedSink]:
        """Open sinks: all of them or, if it raises, none."""
        found: dict[_Of, QueuedSink] = {}
        try:
            for each in wanted:
                found[each] = self._opened_one(each)
        except BaseException:  # Ctrl-C, too: no sink may stay open that nobody knows
            _close(list(found.values()))
            raise
        return found

    def _opened_one(self, settings: _Of) -> QueuedSink:
        if isinstance(settings, RingSettings):
            self._ring = RingDelivery(settings)
            return QueuedSink(RING, self._ring, tell=self._tell)
        bounds = QueueBounds(settings.queue_bytes, settings.queue_age)
        if settings.type == "folder":
            return QueuedSink(settings.name, FolderDelivery(settings.path), bounds, tell=self._tell)
        # Importing urllib3 takes some 50 ms: only an agent that needs it pays for it.
        from ebpfprof.agent.sinks.backends import remote_delivery

        return QueuedSink(
            settings.name,
            remote_delivery(settings),
            bounds,
            tell=self._tell,
            backlog=RingBacklog(lambda: self._ring_path),
            only_windows=True,
            catch_up=self._catch_up,
        )


def _is_successor(settings: _Of, before: _Of) -> bool:
    """Whether a sink takes the place of another: the same backend with other settings."""
    if isinstance(settings, RingSettings) or isinstance(before, RingSettings):
        return False
    is_same = (settings.name, settings.type) == (before.name, before.type)
    return is_same and settings.type in REMOTE


def _catch_up_share(settings: Settings) -> float:
    """What a sink may take of a processor to catch up after its backend was down.

    All of them a quarter of the node's budget: more would be a debt, and nothing would be recorded
    until that is repaid.
    """
    backends = max(1, sum(each.type in REMOTE for each in settings.sinks))
    return settings.max_node_overhead / 100 * (os.cpu_count() or 1) / 4 / backends


def _handed_over(gone: Mapping[_Of, QueuedSink], wanted: Sequence[_Of]) -> _Left:
    """What waits for sinks whose place others take: a corrected address must not cost windows."""
    leaving = {
        each: sink
        for each, sink in gone.items()
        if any(_is_successor(other, each) for other in wanted)
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
