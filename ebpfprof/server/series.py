"""What served processes used and did in the last minutes: a ring of moments of each, for strips."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from ebpfprof.observing.series import SeriesPoint, SeriesReader
from ebpfprof.profile.served_requests import served_requests
from ebpfprof.server.sampling import RegularSamples, Sampled

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcess, OpenProcesses

KEPT_S: Final = 600.0
"""For how long a moment is kept."""
INTERVAL_S: Final = 2.0
"""Between two moments of a process, unless moments take long."""
MOST: Final = int(KEPT_S / INTERVAL_S)
_KIND: Final = "block"
_LATE_S: Final = 10.0
"""So long after its end, a window is there at the latest: clients have later moments already."""
_MOST_ERROR: Final = 0.3  # of the number of requests
SHARE: Final = 0.01
"""Of a processor, for the moments of all processes together."""


class ProcessSeries(RegularSamples[SeriesReader]):
    """The last moments of the processes of a manager, at most 300 of each: about 330 KB.

    They are kept while the manager has the process, also once it has ended.
    """

    def __init__(self, manager: Manager, processes: OpenProcesses) -> None:
        super().__init__(manager, processes)
        self._points: WeakKeyDictionary[RecordedProcess, tuple[SeriesPoint, ...]] = (
            WeakKeyDictionary()
        )

    def as_json(self, process: RecordedProcess, after_s: float = 0.0) -> dict[str, Any]:
        """The moments of a process after `after_s` (Unix time), the oldest first.

        The process is sampled for some time from now on.
        """
        is_over = process.ending is not None
        problem = "" if is_over else self._of(process).problem
        oldest_s = 0.0 if is_over else time.time() - KEPT_S
        points = self._points.get(process, ())
        after_s = max(after_s, oldest_s)
        return {
            "interval_s": INTERVAL_S,
            "kept_s": KEPT_S,
            "problem": problem,
            "points": [asdict(one) for one in points if one.time_s > after_s],
            "requests": _requests(process, after_s),
        }

    def _open(self, process: OpenProcess) -> SeriesReader:
        return SeriesReader(process)

    def _take(
        self, process: RecordedProcess, sampled: Sampled[SeriesReader], reader: SeriesReader
    ) -> float:
        began_s = time.thread_time()
        point = reader.read()
        # A new tuple: clients read the earlier one meanwhile.
        self._points[process] = (*self._points.get(process, ())[1 - MOST :], point)
        cost_s = time.thread_time() - began_s
        return max(INTERVAL_S, cost_s * len(self._sampled) / SHARE)


def _requests(process: RecordedProcess, after_s: float) -> list[dict[str, float]]:
    """How many requests ended a second, at least, in windows that ended lately: served_requests.

    Only where a block profile is recorded, of HTTP/1, and if they are known well enough.
    """
    rates = []
    for window in list(process.history.windows):  # a thread may append one meanwhile
        length_s = window.end_s - window.start_s
        if window.end_s <= after_s - _LATE_S or length_s <= 0 or _KIND not in window.profiles:
            continue
        served = served_requests(window.profiles[_KIND])
        if served.count and served.error <= _MOST_ERROR:
            rates.append(
                {
                    "start_s": window.start_s,
                    "end_s": window.end_s,
                    "per_second": served.count / length_s,
                }
            )
    return rates
