"""What served processes use now, for the page's table: the CPU time between two requests."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ebpfprof.discovery.usage import UsageMeter

if TYPE_CHECKING:
    from ebpfprof.discovery.usage import Usage


class ServedUsage:
    """Measures from one request to the next one that comes INTERVAL_S later; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._meter: UsageMeter | None = None
        self._usage: dict[int, Usage] = {}

    def of(self, pids: Iterable[int]) -> dict[int, Usage]:
        """The usage by pid. A new process has one from the next request on.

        The first call takes INTERVAL_S.
        """
        pids = list(pids)
        with self._lock:
            if self._meter is None:
                self._meter = UsageMeter(pids)
            if self._meter.is_due or not self._usage:
                self._usage = self._meter.finish()
                self._meter = UsageMeter(pids)
            return {pid: self._usage[pid] for pid in pids if pid in self._usage}
