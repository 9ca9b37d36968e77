"""The protocols of sinks, and of the code that delivers for them.

To add a kind of sink: a class with `deliver` (see Delivery), its settings in
ebpfprof.agent.settings, and a line in ebpfprof.agent.sinks.opening.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ebpfprof.profile.service import ProcessEnd, ServiceFindings, ServiceWindow, Unwatched

Item = ServiceWindow | Unwatched | ProcessEnd | ServiceFindings


class Sink(Protocol):
    """Takes profiles; recording never waits for it."""

    @property
    def name(self) -> str:
        """Its name in metrics and messages."""

    def take(self, item: Item) -> None:
        """Take a window, a time without recording, findings or the end of a process, at once.

        Any thread may call it.
        """

    def close(self, within_s: float) -> None:
        """Deliver the queue for at most `within_s`, and end."""

    def counters(self) -> SinkCounters:
        """The fate of all items so far."""


class Delivery(Protocol):
    """Delivers one item after the other, on the sink's own thread."""

    def deliver(self, item: Item) -> None:
        """Deliver an item. Raises RetryLater, Refused, or another error, to retry it later.

        A partly delivered item must not be delivered again: raise Refused.
        """

    def beat(self) -> None:
        """Called every few seconds, also without an item."""

    def go_on(self, before: Delivery) -> None:
        """Continue the partial delivery of a predecessor, to the same backend."""

    def close(self) -> None:
        """Release resources."""


class RetryLater(Exception):  # noqa: N818 (reads better where it is raised)
    """Delivery is not possible now; `after_s` is the pause that the other side asks for."""

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.after_s = after_s


class Refused(Exception):  # noqa: N818 (reads better where it is raised)
    """Delivery will never be possible; `reason` is a word, for counters."""

    def __init__(self, why: str, reason: str = "refused") -> None:
        super().__init__(why)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SinkCounters:
    """Sent windows, failed attempts, windows dropped by reason, and the queue."""

    sent: int = 0
    retried: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    waiting_bytes: int = 0


@dataclass(slots=True)
class Counts:
    """The counters while they grow; guarded by `lock`."""

    sent: int = 0
    retried: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
