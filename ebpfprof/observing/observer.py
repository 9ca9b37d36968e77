"""Observes some processes side by side, for the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError, NotGoProgram
from ebpfprof.observing.observation import Observation
from ebpfprof.profilers.options import Options
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.recording.live import LiveSession
    from ebpfprof.recording.target import LiveTarget

KINDS: Final = ("cpu", "wall")
"""What is recorded meanwhile: neither places a probe in the process."""
_TICK_S: Final = 0.05
_LABELS: Final = ()


def observation_options(*, allow_unknown_go: bool) -> Options:
    """The options of the recording that takes place meanwhile."""
    return Options(KINDS, labels=_LABELS, allow_unknown_go=allow_unknown_go)


class Observer(Closing):
    """Processes that are observed together. A context manager: leaving it closes them."""

    def __init__(self, live: LiveSession, pids: Sequence[int], length_s: float) -> None:
        """Open the processes in `live`, which has observation_options() and room for them.

        Raises any of ebpfprof.errors.
        """
        self._live, self._length_s = live, length_s
        self._targets: list[LiveTarget] = []
        try:
            self._observations = [self._opened(pid) for pid in pids]
        except BaseException:
            self.close()
            raise

    def _opened(self, pid: int) -> Observation:
        target = self._live.add(pid)
        self._targets.append(target)
        go = target.recorded.go
        if go is None:
            raise NotGoProgram(f"Process {pid} ({target.name}) is not a Go program.")
        return Observation(self._live, target, go, self._length_s)

    def observe(self, should_stop: Callable[[float], bool]) -> list[Evidence | EbpfprofError]:
        """Observe all until the time is over or should_stop(), which gets the seconds so far.

        Returns what was observed of each process, or why that failed, in order.
        """
        failures: dict[Observation, EbpfprofError] = {}
        _each(self._observations, Observation.start, failures)
        began_s = time.monotonic()
        while (gone_s := time.monotonic() - began_s) < self._length_s:
            running = [one for one in self._observations if one not in failures]
            if not running or should_stop(gone_s):
                break
            now_s = time.monotonic()
            _each([one for one in running if one.due_s <= now_s], Observation.sample, failures)
            due_s = min(one.due_s for one in running) - time.monotonic()
            rest_s = self._length_s - (time.monotonic() - began_s)
            time.sleep(max(0.0, min(due_s, rest_s, _TICK_S)))
        found: list[Evidence | EbpfprofError] = []
        for one in self._observations:
            try:
                found.append(failures[one] if one in failures else one.finish())
            except EbpfprofError as error:
                found.append(error)
        return found

    def close(self) -> None:
        """Stop the recording and close the processes; `live` stays open."""
        for target in self._targets:
            self._live.remove(target)
        self._targets.clear()


def _each(
    observations: Sequence[Observation],
    work: Callable[[Observation], None],
    failures: dict[Observation, EbpfprofError],
) -> None:
    for one in observations:
        try:
            work(one)
        except EbpfprofError as error:
            failures[one] = error
