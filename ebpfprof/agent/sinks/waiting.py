"""What waits for a sink, bounded in bytes and age: the newest in memory, older ones in the ring."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from ebpfprof.agent.sinks.sink import Item
from ebpfprof.profile.service import ServiceWindow

_SAMPLE_BYTES: Final = 500
"""What a sample takes in memory, with its share of stacks, roughly."""
_ITEM_BYTES: Final = 2_000
NOTE_BYTES: Final = 1_000
"""What the note of a window in the ring takes."""


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """How much may wait, and for how long."""

    most_bytes: int = 64 << 20
    most_age_s: float = 3000.0


@dataclass(frozen=True, slots=True)
class InRing:
    """A window whose profiles wait in the ring: `window` has none, `kinds` are their names."""

    window: ServiceWindow
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class WaitingItem:
    """An item since it was taken, by the clock of the sink; `number` stays when it changes."""

    item: Item | InRing
    size: int
    since_s: float
    number: int


class WaitingItems:
    """A queue; not for several threads at once. `dropped` counts windows that it dropped."""

    def __init__(
        self, bounds: QueueBounds, dropped: Counter[str], has_ring: Callable[[], bool]
    ) -> None:
        """Windows that are too much for memory wait in the ring while `has_ring`."""
        self._bounds, self._dropped, self._has_ring = bounds, dropped, has_ring
        self._older: deque[WaitingItem] = deque()  # all InRing
        self._newer: deque[WaitingItem] = deque()
        self._next = 0
        self._begun = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._older) + len(self._newer)

    def add(self, item: Item, now_s: float) -> None:
        """Append an item; the oldest make room. One that is larger than the queue stands alone."""
        size, most_bytes = size_of(item), self._bounds.most_bytes
        while self._newer and self.bytes + size > most_bytes:
            self._make_room()
        while len(self._older) * NOTE_BYTES > most_bytes:
            self._drop(self._older, "queue_full")
        self._next += 1
        self._newer.append(WaitingItem(item, size, now_s, self._next))
        self.bytes += size

    def take_over(self, items: Iterable[WaitingItem], begun: int) -> None:
        """Append what waited for another sink, by the same clock, as take_all() has it."""
        for each in items:
            self._next += 1
            is_note = isinstance(each.item, InRing)
            (self._older if is_note else self._newer).append(replace(each, number=self._next))
            self.bytes += each.size
            if each.number == begun:
                self._begun = self._next

    def take_all(self) -> tuple[list[WaitingItem], int]:
        """Remove all items, oldest first, without counting them as dropped.

        With the number of the one that failed, 0 if none did.
        """
        items = [*self._older, *self._newer]
        self._older.clear()
        self._newer.clear()
        self.bytes = 0
        return items, self._begun

    def due(self, *, from_ring: bool) -> WaitingItem | None:
        """The one whose turn it is: one that failed, else the oldest; None if there is none.

        What waits in the ring has its turn only if `from_ring`, unless it failed.
        """
        for lane in (self._older, self._newer):
            for each in reversed(lane) if self._begun else ():
                if each.number == self._begun:
                    return each
        self._begun = 0
        if self._older and from_ring:
            return self._older[0]
        return self._newer[0] if self._newer else None

    def keep(self, waiting: WaitingItem) -> None:
        """An item failed, perhaps after a part of it was delivered: it comes first from now on."""
        self._begun = waiting.number

    def remove(self, waiting: WaitingItem) -> bool:
        """Remove an item; False if it was dropped meanwhile."""
        for lane in (self._older, self._newer):
            for each in lane:
                if each.number == waiting.number:
                    lane.remove(each)
                    self.bytes -= each.size
                    return True
        return False

    def drop_old(self, now_s: float) -> None:
        """Drop what has waited for too long."""
        for lane in (self._older, self._newer):
            while lane and now_s - lane[0].since_s > self._bounds.most_age_s:
                self._drop(lane, "too_old")

    def drop_all(self, reason: str) -> None:
        """Drop all that is left."""
        for lane in (self._older, self._newer):
            while lane:
                self._drop(lane, reason)

    def _make_room(self) -> None:
        """Leave the oldest window in memory to the ring, or else drop it."""
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
    """Whether counters count it."""
    return isinstance(waiting.item, ServiceWindow | InRing)


def size_of(item: Item) -> int:
    """About how much memory an item takes, in bytes."""
    if isinstance(item, ServiceWindow):
        return _ITEM_BYTES + _SAMPLE_BYTES * sum(len(p.samples) for p in item.profiles.values())
    return _ITEM_BYTES
