"""A sink with a queue that is bounded in bytes and age, and a thread that empties it.

What does not fit pushes out the oldest. An item that can't be delivered is tried again, later each
time, with jitter, so that the agents of a fleet do not all come back at once; once it is too old it
is dropped. Only the newest state of a problem is told.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ebpfprof.agent.sinks.sink import Counts, Delivery, Item, Refused, RetryLater, SinkCounters
from ebpfprof.console.text import printable
from ebpfprof.profile.service import ProcessEnd, ServiceWindow

FIRST_WAIT_S: Final = 1.0
BEAT_S: Final = 5.0
_LONGEST_WAIT_S: Final = 60.0
_SAMPLE_BYTES: Final = 500
"""What a sample takes in memory, with its share of stacks, roughly."""
_ITEM_BYTES: Final = 2_000


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """How much may wait, and for how long."""

    most_bytes: int = 64 << 20
    most_age_s: float = 3000.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    item: Item
    size: int
    since_s: float


_BEAT: Final = _Waiting(ProcessEnd(0, 0, 0.0), 0, 0.0)


class QueuedSink:
    """A Sink that hands items to a Delivery on a thread of its own."""

    def __init__(
        self,
        name: str,
        delivery: Delivery,
        bounds: QueueBounds | None = None,
        *,
        tell: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tell` gets sentences about problems; `clock` gives seconds."""
        self._name, self._delivery, self._tell, self._clock = name, delivery, tell, clock
        self._bounds = bounds or QueueBounds()
        self._queue: deque[_Waiting] = deque()
        self._bytes = 0
        self._counts = Counts()
        self._changed = threading.Condition(self._counts.lock)
        self._closes_at_s: float | None = None
        self._problem = ""
        self._beat_s = clock()
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """What metrics and messages call it."""
        return self._name

    def take(self, item: Item) -> None:
        """Put it into the queue; the oldest make room. Returns at once."""
        size = size_of(item)
        with self._changed:
            while self._queue and self._bytes + size > self._bounds.most_bytes:
                self._drop("queue_full")
            self._queue.append(_Waiting(item, size, self._clock()))
            self._bytes += size
            self._changed.notify()

    def close(self, within_s: float) -> None:
        """Deliver what waits within so many seconds; the rest is dropped and counted."""
        with self._changed:
            self._closes_at_s = self._clock() + within_s
            self._changed.notify()
        self._thread.join(within_s + 0.5)
        with self._changed:
            while self._queue:
                self._drop("closed")

    def counters(self) -> SinkCounters:
        """What happened to all that it took so far."""
        with self._changed:
            counts = self._counts
            dropped = dict(counts.dropped)
            return SinkCounters(counts.sent, counts.retried, dropped, len(self._queue), self._bytes)

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

    def _next(self, until_s: float) -> _Waiting | None:
        """The oldest item, once it is time; None once the sink is closed and empty.

        _BEAT if nothing is due and a beat is.
        """
        with self._changed:
            while True:
                now_s = self._clock()
                closes_at_s = self._closes_at_s
                if closes_at_s is not None and (not self._queue or now_s >= closes_at_s):
                    return None
                while self._queue and now_s - self._queue[0].since_s > self._bounds.most_age_s:
                    self._drop("too_old")
                is_due = now_s >= until_s or closes_at_s is not None
                if self._queue and is_due:
                    return self._queue[0]
                wait_s = max(0.01, until_s - now_s) if self._queue else BEAT_S
                self._changed.wait(min(BEAT_S, wait_s))
                if self._clock() >= self._beat_s + BEAT_S:
                    return _BEAT

    def _try(self, waiting: _Waiting, waited_s: float) -> float:
        """Deliver an item; returns for how long to wait before the next attempt."""
        after_s = 0.0
        problem = reason = ""
        try:
            self._delivery.deliver(waiting.item)
        except Refused as error:
            problem, reason = str(error), error.reason
        except RetryLater as error:
            problem, after_s = str(error), max(error.after_s, self._back_off(waited_s))
        except Exception as error:  # one bad item must not end the sink
            problem = f"{type(error).__name__}: {error}"
            after_s = self._back_off(waited_s)
        with self._changed:
            is_there = bool(self._queue) and self._queue[0] is waiting
            if after_s:
                self._counts.retried += 1
            elif is_there:  # else it was pushed out meanwhile, and counted
                self._queue.popleft()
                self._bytes -= waiting.size
                if reason:
                    self._counts.dropped[reason] += isinstance(waiting.item, ServiceWindow)
                else:
                    self._counts.sent += isinstance(waiting.item, ServiceWindow)
            if after_s and self._closes_at_s is not None:
                after_s = min(after_s, 0.2)
        self._tell_problem(problem)
        return after_s

    def _beat(self) -> None:
        self._beat_s = self._clock()
        with suppress(Exception):  # what is wrong shows when something is delivered
            self._delivery.beat()

    def _back_off(self, waited_s: float) -> float:
        longest = min(_LONGEST_WAIT_S, max(FIRST_WAIT_S, 2 * waited_s))
        return longest * random.uniform(0.5, 1.0)

    def _tell_problem(self, problem: str) -> None:
        if problem != self._problem:
            if problem:
                self._tell(f"The sink {self._name} could not deliver: {printable(problem)}")
            elif self._problem:
                self._tell(f"The sink {self._name} delivers again.")
        self._problem = problem

    def _drop(self, reason: str) -> None:
        oldest = self._queue.popleft()
        self._bytes -= oldest.size
        self._counts.dropped[reason] += isinstance(oldest.item, ServiceWindow)


def size_of(item: Item) -> int:
    """About how much memory an item takes, in bytes."""
    if isinstance(item, ServiceWindow):
        return _ITEM_BYTES + _SAMPLE_BYTES * sum(len(p.samples) for p in item.profiles.values())
    return _ITEM_BYTES
