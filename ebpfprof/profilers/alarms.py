"""Wakes the thread that records a process when its budget may be used up (bpf/probes/alarm.h)."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Final

from ebpfprof.kernel.maps import possible_cpus
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.ring_buffer import RingReader
from ebpfprof.system.closing import Closing
from ebpfprof.system.priority import run_promptly

_LEAST_HITS: Final = 64  # each alarm costs us a tenth of a millisecond


class BudgetAlarms(Closing):
    """The alarms of all targets of one loaded program, and a thread that waits for them."""

    def __init__(self, program: BpfProgram) -> None:
        self._maps = program.maps
        self._woken_by: dict[int, Callable[[], None]] = {}
        self._closed_fd, self._close_fd = os.pipe2(os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # once there is an alarm

    def arm(self, index: int, hits: float, wake: Callable[[], None]) -> None:
        """Call `wake`, from another thread, once some processor had its part of that many hits.

        They count from now on. Replaces an earlier alarm of this target. Raises KernelUnsupported.
        """
        with self._lock:
            if self._thread is None:
                reader = self._maps["rung"].reader()
                self._thread = threading.Thread(
                    target=self._run, args=(reader,), name="ebpfprof-alarms", daemon=True
                )
                self._thread.start()
        self._woken_by[index] = wake
        share = max(_LEAST_HITS, int(hits / possible_cpus()))
        runs = self._maps["costs"].each_at(index, "runs")
        self._maps["alarms"].set_each(index, [count + share for count in runs])

    def forget(self, index: int) -> None:
        """Call nobody any more for this target."""
        self._woken_by.pop(index, None)

    def close(self) -> None:
        """End the thread; the maps may be closed afterwards. May be called twice."""
        if self._close_fd >= 0:
            os.close(self._close_fd)
            if self._thread:
                self._thread.join()
            os.close(self._closed_fd)
            self._close_fd = -1

    def _run(self, reader: RingReader) -> None:
        run_promptly()
        events = select.poll()
        events.register(self._maps["rung"].fd, select.POLLIN)
        events.register(self._closed_fd, select.POLLHUP)
        while all(fd != self._closed_fd for fd, _ in events.poll()):
            for index in {int.from_bytes(record[:4], "little") for record in reader.consume()}:
                if wake := self._woken_by.get(index):
                    wake()
