"""The routes of handlers of recorded processes, sampled while these are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.samples.sampling_thread import SampledTarget, SamplingRate, SamplingThread
from symbolizer.errors import GoTableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.waits.routes import RouteSampler
    from ebpfprof.recording.target import RecordedTarget

_RATE: Final = SamplingRate(5, 5)


class SampledRoutes:
    """Samples the requests of processes. Handlers of a process that can't be read have no routes.

    Samples take 2 % of a processor at most, of ebpfprof's own time.
    """

    def __init__(self, targets: Iterable[RecordedTarget]) -> None:
        """Open the processes: for a large program that takes some tenths of a second."""
        opened = ((target.target.pid, _opened(target.go)) for target in targets if target.go)
        self._samplers: Final = {pid: sampler for pid, sampler in opened if sampler}
        self._thread: Final = SamplingThread()
        self._turns: list[SampledTarget] = []

    def start(self) -> None:
        """Begin to sample."""
        for sampler in self._samplers.values():
            # After an error, the routes that are known remain.
            turns = SampledTarget(_RATE, sampler.sample, lambda _: None)
            self._turns.append(turns)
            self._thread.join(turns)

    def stop(self) -> None:
        """End it. May be called twice."""
        while self._turns:
            self._thread.leave(self._turns.pop())

    def of(self, target: RecordedTarget) -> Mapping[str, str]:
        """The routes of a process by the function of the handler."""
        sampler = self._samplers.get(target.target.pid)
        return sampler.routes if sampler else {}


def _opened(go: GoTarget) -> RouteSampler | None:
    from ebpfprof.goruntime.waits.routes import RouteSampler

    try:
        return RouteSampler(go)
    except (EbpfprofError, GoTableError):  # it has ended, or is no program that we can read
        return None
