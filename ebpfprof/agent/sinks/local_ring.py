"""The sink for the local ring, which `ebpfprof history` reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ebpfprof.agent.sinks.sink import Delivery, Item, Refused
from ebpfprof.profile.service import ProcessEnd, ServiceFindings, ServiceWindow
from ebpfprof.ring.writer import Ring, RingState

if TYPE_CHECKING:
    from ebpfprof.agent.settings import RingSettings


class RingDelivery:
    """Writes into the ring, which limits itself. Windows that it can't take are dropped."""

    def __init__(self, settings: RingSettings) -> None:
        """Open the ring. Raises RingError, PermissionDenied."""
        self._ring = Ring(
            Path(settings.path), settings.max_bytes, settings.max_age, settings.keep_free
        )

    def deliver(self, item: Item) -> None:
        """Write a window or a note. Raises Refused."""
        if not self._is_written(item):
            raise Refused(self._ring.state().last_error, "not_written")

    def beat(self) -> None:
        """Record that the agent is running, and remove old files."""
        self._ring.beat()

    def state(self) -> RingState:
        """The state of the ring, for metrics."""
        return self._ring.state()

    def go_on(self, before: Delivery) -> None:
        """Nothing to do: each item is written completely."""

    def close(self) -> None:
        """Record when the agent ended."""
        self._ring.close()

    def _is_written(self, item: Item) -> bool:
        if isinstance(item, ServiceWindow):
            return self._ring.write(item)
        if isinstance(item, ProcessEnd):
            return self._ring.note_ended(item.pid, item.process_start_ns, item.end_s)
        if isinstance(item, ServiceFindings):
            return self._ring.note_findings(item)
        return self._ring.note_unrecorded(
            item.identity,
            item.pid,
            item.process_start_ns,
            item.command,
            item.start_s,
            item.end_s,
            item.reason,
        )
