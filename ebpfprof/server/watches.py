"""Watches the goroutines of processes while a page shows them, or all the time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.waits.watch import GoroutineWatch, WatchedGoroutines
from ebpfprof.server.sampling import RegularSamples, Sampled

if TYPE_CHECKING:
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcess

READ_S: Final = 30.0
"""For how long after a request samples are frequent."""
QUICK_S: Final = (1.25, 30.0)  # the seconds between two samples, and between two of all stacks
SLOW_S: Final = (10.0, 60.0)
_FIRST_SAMPLES: Final = 12  # these are frequent: what hangs is found after some samples
_NOTHING: Final = WatchedGoroutines(0, 0, (), (), ())


class GoroutineWatches(RegularSamples[GoroutineWatch]):
    """The watches of the processes of a manager: together they take a few hundredths of a processor
    at most."""

    def read(self, process: RecordedProcess) -> tuple[WatchedGoroutines, float, str]:
        """What is known of a process now, when it was sampled (Unix time), and why it can't be.

        The process is watched for some time from now on.
        """
        watched = self._of(process)
        now_s = time.monotonic()
        if now_s - watched.read_s > READ_S:
            watched.due_s = min(watched.due_s, now_s + QUICK_S[0])
        watched.read_s = now_s
        findings = watched.reader.found if watched.reader else _NOTHING
        return findings, watched.sampled_s, watched.problem

    def glance(self, process: RecordedProcess) -> WatchedGoroutines | None:
        """What is known of a process now; it is watched for some time, with samples now and then.

        None before the first sample, or if it can't be read.
        """
        self._of(process)
        return self.known(process)

    def known(self, process: RecordedProcess) -> WatchedGoroutines | None:
        """The same of a process that is watched, without prolonging that; None of any other."""
        watched = self._sampled.get(process)
        if not watched or not watched.reader or not watched.sampled_s or watched.problem:
            return None
        return watched.reader.found

    def _open(self, process: OpenProcess) -> GoroutineWatch:
        return GoroutineWatch(process.go())

    def _take(
        self, process: RecordedProcess, sampled: Sampled[GoroutineWatch], reader: GoroutineWatch
    ) -> float:
        is_quick = sampled.samples < _FIRST_SAMPLES or time.monotonic() - sampled.read_s < READ_S
        interval_s, full_every_s = QUICK_S if is_quick else SLOW_S
        return reader.sample(interval_s=interval_s, full_every_s=full_every_s)
