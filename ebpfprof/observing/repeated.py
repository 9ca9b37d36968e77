"""Observes one process after the other, with programs that are loaded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ebpfprof.errors import EbpfprofError
from ebpfprof.observing.observer import Observer
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.recording.live import LiveSession


class RepeatedObserver(Closing):
    """Observes one process at a time. The first observation loads the programs."""

    def __init__(self, open_live: Callable[[], LiveSession]) -> None:
        """`open_live` opens a session with observation_options()."""
        self._open_live = open_live
        self._live: LiveSession | None = None

    @property
    def sampling_s(self) -> float:
        """The CPU time that goroutine samples have taken in all observations."""
        return self._live.sampling_s if self._live else 0.0

    def observe(self, pid: int, length_s: float, should_stop: Callable[[float], bool]) -> Evidence:
        """What was observed of a process, as by Observer. Raises any of ebpfprof.errors."""
        if self._live is None:
            self._live = self._open_live()
        with Observer(self._live, [pid], length_s) as observer:
            (observed,) = observer.observe(should_stop)
        if isinstance(observed, EbpfprofError):
            raise observed
        return observed

    def close(self) -> None:
        """Unload the programs."""
        if self._live is not None:
            self._live.close()
            self._live = None
