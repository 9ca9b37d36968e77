"""A sink with a queue that is limited in bytes and age, and a thread that empties it.

Items that do not fit into memory wait in the local ring; without a ring, the oldest are dropped. A
failed delivery is repeated after pauses that grow, with jitter, so that the agents of a fleet do
not all retry at once. Items that are too old are dropped. A problem is reported once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, get_args

from ebpfprof.agent.sinks.ring_backlog import RingBacklog
from ebpfprof.agent.sinks.sink import Counts, Delivery, Item, Refused, RetryLater, SinkCounters
from ebpfprof.agent.sinks.waiting import InRing, QueueBounds, WaitingItem, WaitingItems, is_window
from ebpfprof.console.text import printable
from ebpfprof.profile.service import ProcessEnd, ServiceWindow

FIRST_WAIT_S: Final = 1.0
BEAT_S: Final = 5.0
_LONGEST_WAIT_S: Final = 60.0
_BEAT: Final = WaitingItem(ProcessEnd(0, 0, 0.0), 0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The queue of a sink, for its successor.

    `begun` is the number of the item that failed, perhaps after a partial delivery: `delivery`
    knows which part. `delivery` is None if an attempt was still running.
    """

    items: Sequence[WaitingItem]
    begun: int
    delivery: Delivery | None


class QueuedSink:
    """A Sink that passes items to a Delivery on its own thread."""

    def __init__(
        self,
        name: str,
        delivery: Delivery,
        bounds: QueueBounds | None = None,
        *,
        notify: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        backlog: RingBacklog | None = None,
        takes: tuple[type[Item], ...] = get_args(Item),
        catch_up: float | None = None,
    ) -> None:
        """`notify` is called with messages about problems; `clock` returns seconds.

        Items that do not fit into memory wait in the `backlog`. Reading them back and delivering
        them uses at most `catch_up`, a share of a processor; None: no limit. It ignores items of
        other classes than `takes`.
        """
        self._name, self._delivery, self._notify, self._clock = name, delivery, notify, clock
        self._backlog, self._takes = backlog, takes
        self._counts = Counts()
        has_ring = backlog.is_there if backlog else lambda: False
        self._queue = WaitingItems(bounds or QueueBounds(), self._counts.dropped, has_ring)
        self._catch_up = catch_up
        self._catch_up_at_s = 0.0
        self._read_back: tuple[int, ServiceWindow] | None = None
        self._changed = threading.Condition(self._counts.lock)
        self._closes_at_s: float | None = None
        self._problem = ""
        self._beat_s = clock()
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """Its name in metrics and messages."""
        return self._name

    def take(self, item: Item) -> None:
        """Add an item to the queue; if it is full, the oldest are removed. Returns at once."""
        if not isinstance(item, self._takes):
            return
        with self._changed:
            self._queue.add(item, self._clock())
            self._changed.notify()

    def close(self, within_s: float) -> None:
        """Deliver the queue for at most `within_s`; the rest is dropped and counted."""
        with self._changed:
            self._closes_at_s = self._clock() + within_s
            self._changed.notify()
        self._thread.join(within_s + 0.5)
        with self._changed:
            self._queue.drop_all("closed")

    def hand_over(self, within_s: float) -> HandedOver:
        """End, without dropping the queue, and return it for a successor.

        Waits up to `within_s` for a running attempt.
        """
        with self._changed:
            self._closes_at_s = self._clock()
            self._changed.notify()
        self._thread.join(within_s)
        delivery = None if self._thread.is_alive() else self._delivery
        with self._changed:
            return HandedOver(*self._queue.take_all(), delivery)

    def take_over(self, left: HandedOver) -> None:
        """Deliver the queue of a predecessor first. Call it before the first take()."""
        with self._changed:
            if left.delivery:
                self._delivery.go_on(left.delivery)
            self._queue.take_over(left.items, left.begun)
            self._changed.notify()

    def counters(self) -> SinkCounters:
        """The fate of all items so far."""
        with self._changed:
            counts = self._counts
            dropped = dict(counts.dropped)
            waiting, size = len(self._queue), self._queue.bytes
            return SinkCounters(counts.sent, counts.retried, dropped, waiting, size)

    def _run(self) -> None:
        try:
            wait_s = 0.0
            until_s = 0.0
            while (waiting := self._next(until_s)) is not None:
                if waiting is _BEAT:
                    self._beat()
                else:
                    wait_s = self._try(waiting, wait_s)
                    until_s = self._clock() + wait_s
        finally:
            self._delivery.close()
            if self._backlog:
                self._backlog.close()

    def _next(self, until_s: float) -> WaitingItem | None:
        """The oldest item, when it is due; None once the sink is closed and empty.

        _BEAT if only a beat is due.
        """
        with self._changed:
            while True:
                now_s = self._clock()
                closes_at_s = self._closes_at_s
                if closes_at_s is not None and (not self._queue or now_s >= closes_at_s):
                    return None
                self._queue.drop_old(now_s)
                is_closing = closes_at_s is not None
                from_ring = now_s >= self._catch_up_at_s or is_closing
                due = self._queue.due(from_ring=from_ring)
                if due and (now_s >= until_s or is_closing):
                    return due
                at_s = until_s if due else self._catch_up_at_s
                wait_s = max(0.01, at_s - now_s) if self._queue else BEAT_S
                self._changed.wait(min(BEAT_S, wait_s))
                if self._clock() >= self._beat_s + BEAT_S:
                    return _BEAT

    def _try(self, waiting: WaitingItem, waited_s: float) -> float:
        """Deliver an item; returns how long to wait before the next attempt."""
        after_s = 0.0
        problem = reason = ""
        begun_s = time.thread_time()
        try:
            self._delivery.deliver(self._whole(waiting))
        except Refused as error:
            problem, reason = str(error), error.reason
        except RetryLater as error:
            problem, after_s = str(error), max(error.after_s, self._back_off(waited_s))
        except Exception as error:  # one bad item must not end the sink
            problem = f"{type(error).__name__}: {error}"
            after_s = self._back_off(waited_s)
        with self._changed:
            if self._catch_up and isinstance(waiting.item, InRing):
                pause_s = (time.thread_time() - begun_s) / self._catch_up
                self._catch_up_at_s = self._clock() + pause_s
            if after_s:
                self._counts.retried += 1
                self._queue.keep(waiting)
            elif self._queue.remove(waiting):  # else it was dropped meanwhile, and counted
                if reason:
                    self._counts.dropped[reason] += is_window(waiting)
                else:
                    self._counts.sent += is_window(waiting)
            if after_s and self._closes_at_s is not None:
                after_s = min(after_s, 0.2)
        self._tell_problem(problem)
        return after_s

    def _whole(self, waiting: WaitingItem) -> Item:
        """The item with its profiles. Raises Refused if the ring has removed them."""
        if not isinstance(waiting.item, InRing):
            return waiting.item
        if self._read_back is None or self._read_back[0] != waiting.number:
            assert self._backlog
            self._read_back = waiting.number, self._backlog.window(waiting.item)
        return self._read_back[1]

    def _beat(self) -> None:
        self._beat_s = self._clock()
        with suppress(Exception):  # a delivery will report the problem
            self._delivery.beat()

    def _back_off(self, waited_s: float) -> float:
        longest = min(_LONGEST_WAIT_S, max(FIRST_WAIT_S, 2 * waited_s))
        return longest * random.uniform(0.5, 1.0)

    def _tell_problem(self, problem: str) -> None:
        if problem != self._problem:
            if problem:
                self._notify(f"The sink {self._name} could not deliver: {printable(problem)}")
            elif self._problem:
                self._notify(f"The sink {self._name} delivers again.")
        self._problem = problem
