"""What a sink is to the agent, and what a queue needs of the code that delivers.

To add a kind of sink: a class with `deliver` (see Delivery), its settings in
ebpfprof.agent.settings, and a line in ebpfprof.agent.sinks.opening.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ebpfprof.profile.service import ProcessEnd, ServiceWindow, Unwatched

Item = ServiceWindow | Unwatched | ProcessEnd


class Sink(Protocol):
    """Takes what was recorded; recording never waits for it."""

    @property
    def name(self) -> str:
        """What metrics and messages call it."""

    def take(self, item: Item) -> None:
        """Take a window, a time in which a process was not watched, or its end. Returns at once.

        Any thread may call it.
        """

    def close(self, within_s: float) -> None:
        """Deliver what waits, but for no longer than so many seconds, and end."""

    def counters(self) -> SinkCounters:
        """What happened to all that it took so far."""


class Delivery(Protocol):
    """Delivers one item after the other, on the sink's own thread."""

    def deliver(self, item: Item) -> None:
        """Deliver it. Raises RetryLater, Refused, or any other error, which counts as RetryLater.

        An item that was delivered in part must not be delivered again: that is Refused.
        """

    def beat(self) -> None:
        """Called every few seconds, whether or not there is something to deliver."""

    def go_on(self, before: Delivery) -> None:
        """Go on with what another one delivered in part, to the same backend."""

    def close(self) -> None:
        """Give back what it holds."""


class RetryLater(Exception):  # noqa: N818 (reads better where it is raised)
    """It can't be delivered now; `after_s`: not before so many seconds, if the other side says."""

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.after_s = after_s


class Refused(Exception):  # noqa: N818 (reads better where it is raised)
    """It will never be delivered; `reason` is a word, for counters."""

    def __init__(self, why: str, reason: str = "refused") -> None:
        super().__init__(why)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SinkCounters:
    """Windows that were sent, attempts that failed, and windows that were dropped, by reason."""

    sent: int = 0
    retried: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    waiting_bytes: int = 0


@dataclass(slots=True)
class Counts:
    """The same while it grows; any thread may count."""

    sent: int = 0
    retried: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
