"""The queue of a sink, limited in bytes and age: the newest in memory, older ones in the ring."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from ebpfprof.agent.sinks.sink import Item
from ebpfprof.profile.service import ServiceWindow

_SAMPLE_BYTES: Final = 500
"""The approximate memory of a sample, with its share of stacks."""
_ITEM_BYTES: Final = 2_000
NOTE_BYTES: Final = 1_000
"""The memory for a window that waits in the ring."""


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Limits of the queue."""

    most_bytes: int = 64 << 20
    most_age_s: float = 3000.0


@dataclass(frozen=True, slots=True)
class InRing:
    """A window whose profiles are in the ring: `window` has none, `kinds` are their names."""

    window: ServiceWindow
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class WaitingItem:
    """An item, with the time of its arrival by the sink's clock; `number` identifies it."""

    item: Item | InRing
    size: int
    since_s: float
    number: int


class WaitingItems:
    """A queue; calls must not be concurrent. `dropped` counts the windows that it dropped."""

    def __init__(
        self, bounds: QueueBounds, dropped: Counter[str], has_ring: Callable[[], bool]
    ) -> None:
        """Windows that exceed the memory wait in the ring while `has_ring`."""
        self._bounds, self._dropped, self._has_ring = bounds, dropped, has_ring
        self._older: deque[WaitingItem] = deque()  # all InRing
        self._newer: deque[WaitingItem] = deque()
        self._next = 0
        self._begun = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._older) + len(self._newer)

    def add(self, item: Item, now_s: float) -> None:
        """Append an item, and remove the oldest to make room."""
        size, most_bytes = size_of(item), self._bounds.most_bytes
        while self._newer and self.bytes + size > most_bytes:
            self._make_room()
        while len(self._older) * NOTE_BYTES > most_bytes:
            self._drop(self._older, "queue_full")
        self._next += 1
        self._newer.append(WaitingItem(item, size, now_s, self._next))
        self.bytes += size

    def take_over(self, items: Iterable[WaitingItem], begun: int) -> None:
        """Append the result of take_all() of another sink with the same clock."""
        for one in items:
            self._next += 1
            is_note = isinstance(one.item, InRing)
            (self._older if is_note else self._newer).append(replace(one, number=self._next))
            self.bytes += one.size
            if one.number == begun:
                self._begun = self._next

    def take_all(self) -> tuple[list[WaitingItem], int]:
        """Remove all items, oldest first, without counting them as dropped.

        Also returns the number of the item that failed, 0 without one.
        """
        items = [*self._older, *self._newer]
        self._older.clear()
        self._newer.clear()
        self.bytes = 0
        return items, self._begun

    def due(self, *, from_ring: bool) -> WaitingItem | None:
        """The next item: the one that failed, else the oldest; None if there is none.

        Items in the ring count only if `from_ring`, or if they failed.
        """
        for lane in (self._older, self._newer):
            for one in reversed(lane) if self._begun else ():
                if one.number == self._begun:
                    return one
        self._begun = 0
        if self._older and from_ring:
            return self._older[0]
        return self._newer[0] if self._newer else None

    def keep(self, waiting: WaitingItem) -> None:
        """An item failed, perhaps after a partial delivery: it comes first from now on."""
        self._begun = waiting.number

    def remove(self, waiting: WaitingItem) -> bool:
        """Remove an item; False if it was dropped meanwhile."""
        for lane in (self._older, self._newer):
            for one in lane:
                if one.number == waiting.number:
                    lane.remove(one)
                    self.bytes -= one.size
                    return True
        return False

    def drop_old(self, now_s: float) -> None:
        """Drop items that are too old."""
        for lane in (self._older, self._newer):
            while lane and now_s - lane[0].since_s > self._bounds.most_age_s:
                self._drop(lane, "too_old")

    def drop_all(self, reason: str) -> None:
        """Drop all items."""
        for lane in (self._older, self._newer):
            while lane:
                self._drop(lane, reason)

    def _make_room(self) -> None:
        """Replace the oldest window in memory by a note of its profiles in the ring, or drop it."""
        first = self._newer[0]
        if not isinstance(first.item, ServiceWindow) or not self._has_ring():
            self._drop(self._newer, "queue_full")
            return
        window = first.item
        note = InRing(replace(window, profiles={}), frozenset(window.profiles))
        self._newer.popleft()
        self._older.append(replace(first, item=note, size=NOTE_BYTES))
        self.bytes += NOTE_BYTES - first.size

    def _drop(self, lane: deque[WaitingItem], reason: str) -> None:
        popped = lane.popleft()
        self.bytes -= popped.size
        self._dropped[reason] += is_window(popped)


def is_window(waiting: WaitingItem) -> bool:
    """Whether it is a window, which counters count."""
    return isinstance(waiting.item, ServiceWindow | InRing)


def size_of(item: Item) -> int:
    """The approximate memory of an item, in bytes."""
    if isinstance(item, ServiceWindow):
        return _ITEM_BYTES + _SAMPLE_BYTES * sum(len(p.samples) for p in item.profiles.values())
    return _ITEM_BYTES
