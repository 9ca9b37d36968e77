"""Traces processes all the time, so that the seconds before a trouble can be kept."""

from __future__ import annotations

import math
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.timelines import timeline_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from ebpfprof.goruntime.open_processes import OpenOptions
    from ebpfprof.timeline.model import Timeline

MOST: Final = 4
"""Of how many processes at once the seconds before are kept: each takes 32 MiB."""


@dataclass
class SecondsBefore:
    """The last `last_s` seconds of some processes. A context manager: leaving it ends the traces.

    They cost a process `max_overhead` percent of its CPU time at most. What can't be traced affects
    no other process: timeline() raises the reason.
    """

    pids: Sequence[int]
    opening: OpenOptions
    last_s: float
    max_overhead: float
    _held: ExitStack = field(default_factory=ExitStack)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _recorders: dict[int, TraceRecorder] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _failures: dict[int, EbpfprofError] = field(default_factory=dict)

    def __enter__(self) -> Self:
        with ExitStack() as held:  # at Ctrl-C, too, no probe may stay
            processes = OpenProcesses(held.enter_context(WorkerFileOpener()), self.opening)
            for pid in self.pids:
                try:
                    self._start(pid, processes, held)
                except EbpfprofError as error:
                    self._failures[pid] = error
            held.callback(self._end)
            self._held = held.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close()

    def timeline(self, pid: int) -> Timeline:
        """The last seconds of a process; if it has ended, those before its end.

        Raises why there is none.
        """
        if failure := self._failures.get(pid):
            raise failure
        recorder = self._recorders[pid]
        if isinstance(recorder.failure, EbpfprofError):
            raise recorder.failure
        return timeline_of(recorder.recorded())

    def _start(self, pid: int, processes: OpenProcesses, held: ExitStack) -> None:
        go = held.enter_context(processes.open(pid)).go()
        options = TraceOptions(max_overhead=self.max_overhead, last_s=self.last_s)
        recorder = held.enter_context(TraceRecorder(go, options))
        recorder.load()
        recorder.start()
        thread = threading.Thread(
            target=self._record, args=(recorder,), name="ebpfprof-before", daemon=True
        )
        thread.start()
        self._recorders[pid] = recorder
        self._threads.append(thread)

    def _record(self, recorder: TraceRecorder) -> None:
        recorder.record(math.inf, lambda _: self._is_over.is_set())
        recorder.stop()

    def _end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
