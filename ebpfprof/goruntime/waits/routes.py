"""The routes of handlers: the requests of goroutines that wait, read repeatedly without a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.goruntime.waits.http_requests import RequestReader
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.handlers import handler_in
from ebpfprof.profile.routes import SeenRoutes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.goruntime.process import GoTarget

_MOST_GOROUTINES: Final = 2_000
"""Of programs with more, the first ones: a sample takes about 20 ms then."""


class RouteSampler:
    """Samples the requests of one target."""

    def __init__(self, go: GoTarget) -> None:
        """Open the target's memory. Raises TargetGone, PermissionDenied or GoTableError."""
        scanner = GoroutineScanner(go, has_labels=False, most=_MOST_GOROUTINES)
        self._scanner, self._frames = scanner, StackFrames(go)
        self._requests = RequestReader(go, scanner)
        self._has_requests = self._requests.prepare()
        self._seen = SeenRoutes()

    @property
    def routes(self) -> Mapping[str, str]:
        """The routes by Handler.function, of all samples: see SeenRoutes.by_function."""
        return self._seen.by_function()

    def sample(self) -> None:
        """Take a sample. Raises TargetGone or GoTableError."""
        if not self._has_requests:
            return
        try:
            goroutines = self._scanner.scan().goroutines
            requests = self._requests.read(goroutines)
        except UnreadableMemory:
            return  # the runtime has not begun yet, or its memory changed: the next sample may do
        handling = [goroutine for goroutine in goroutines if goroutine.goid in requests]
        self._frames.look_up(pc for goroutine in handling for pc in goroutine.pcs)
        for goroutine in handling:
            handler = handler_in(self._frames.of(goroutine.pcs))
            if handler and handler.function:
                self._seen.add(handler.function, goroutine.goid, requests[goroutine.goid])
