"""The handlers of a recorded process: names for its samples; routes and peers, by sampling."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.samples.sampling_thread import SampledTarget, SamplingRate
from ebpfprof.profile.handlers import HandlerLabels
from symbolizer.errors import GoTableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.samples.sampling_thread import SamplingThread
    from ebpfprof.goruntime.waits.routes import HandlerSampler
    from ebpfprof.profile.model import PeerSamples, Profile

_RATE: Final = SamplingRate(5, 5)
_MOST_WITHOUT_ROUTES: Final = 100


class ProcessHandlers:
    """Labels the profiles of a process with its handlers, and samples their routes and peers.

    Without `routes`, names are those of functions, and at most 100 of them: for a backend that
    keeps each name as a series. Handlers of a process that can't be read have no routes, either.
    Peers are known as long as routes are.
    """

    def __init__(self, go: GoTarget | None, routes: SamplingThread | None) -> None:
        """With `routes`, open the process: for a large program that takes some tenths of a second.

        `routes` is the thread that samples them.
        """
        self._thread: Final = routes
        self._labels = HandlerLabels() if routes else HandlerLabels(_MOST_WITHOUT_ROUTES)
        self._sampler = _opened(go) if go and routes else None
        self._routes: Mapping[str, str] = {}
        self._peers: tuple[PeerSamples, ...] = ()  # with functions as names
        # After an error, the routes that are known remain.
        self._turns = SampledTarget(_RATE, self._sample, lambda _: None)

    def start(self) -> None:
        """Begin to sample routes."""
        if self._thread and self._sampler:
            self._thread.join(self._turns)

    def stop(self) -> None:
        """End it. May be called twice."""
        if self._thread:
            self._thread.leave(self._turns)

    def close(self) -> None:
        """End it for good: the routes that are known stay."""
        self.stop()
        self._sampler = None

    def labelled(self, profiles: Sequence[Profile]) -> list[Profile]:
        """The profiles with the labels of handlers, and their peers. Any thread may call it."""
        labelled = self._labels.labelled(profiles, self._routes)
        names = self._labels.names(self._routes)
        peers = tuple(
            replace(one, handler=names[one.handler]) for one in self._peers if one.handler in names
        )
        return [replace(profile, peers=peers) for profile in labelled]

    def _sample(self) -> None:
        if self._sampler:
            self._sampler.sample()
            self._routes, self._peers = self._sampler.routes, self._sampler.peers


def _opened(go: GoTarget) -> HandlerSampler | None:
    from ebpfprof.goruntime.waits.routes import HandlerSampler

    try:
        return HandlerSampler(go)
    except (EbpfprofError, GoTableError):  # it has ended, or is no program that we can read
        return None
