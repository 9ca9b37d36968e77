"""Traces processes all the time, so that the seconds before a trouble can be kept."""

from __future__ import annotations

import math
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import AttachFailed, EbpfprofError
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.system.closing import Closing
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.timelines import timeline_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.open_processes import OpenOptions
    from ebpfprof.timeline.model import Timeline

MOST: Final = 4
"""Of how many processes at once the seconds before are kept: each takes 32 MiB."""


class SecondsBefore(Closing):
    """The last seconds of some processes: start() begins to trace them, close() ends that.

    What can't be traced affects no other process: timeline() raises the reason.
    """

    def __init__(
        self, pids: Sequence[int], opening: OpenOptions, *, last_s: float, max_overhead: float
    ) -> None:
        """Keep `last_s` seconds, for at most `max_overhead` percent of a process's CPU time."""
        self._pids, self._opening = pids, opening
        self._options = TraceOptions(max_overhead=max_overhead, last_s=last_s)
        self._held = ExitStack()
        self._is_over = threading.Event()
        self._recorders: dict[int, TraceRecorder] = {}
        self._threads: list[threading.Thread] = []
        self._failures: dict[int, EbpfprofError] = {}

    def start(self) -> None:
        """Begin to trace."""
        processes = OpenProcesses(self._held.enter_context(WorkerFileOpener()), self._opening)
        for pid in self._pids:
            try:
                self._start(pid, processes)
            except EbpfprofError as error:
                self._failures[pid] = error

    def timeline(self, pid: int) -> Timeline:
        """The last seconds of a process; if it has ended, those before its end.

        Raises why there is none.
        """
        if failure := self._failures.get(pid):
            raise failure
        recorder = self._recorders[pid]
        if recorder.failure:  # what it has may be of long ago
            raise AttachFailed(f"The trace ended early: {recorder.failure}") from recorder.failure
        return timeline_of(recorder.recorded())

    def close(self) -> None:
        """Detach all probes. May be called twice."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self._held.close()

    def _start(self, pid: int, processes: OpenProcesses) -> None:
        go = self._held.enter_context(processes.open(pid)).go()
        recorder = self._held.enter_context(TraceRecorder(go, self._options))
        recorder.load()
        recorder.start()
        thread = threading.Thread(
            target=self._record, args=(recorder,), name="ebpfprof-before", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        self._recorders[pid] = recorder

    def _record(self, recorder: TraceRecorder) -> None:
        recorder.record(math.inf, lambda _: self._is_over.is_set())
        recorder.stop()
