"""How many requests a server of net/http answered, by what it waits for at the end of each.

While a handler runs, a goroutine of the connection reads on, to notice that the client is gone. At
the end of each request, (*response).finishRequest stops it and waits for that once
((*connReader).abortPendingRead, net/http/server.go, Go 1.17 to 1.27). A block profile has these
waits. There are none for a request whose body was not read to its end, or after which the next
one came at once. So there were at least as many requests as waits. HTTP/2 has no such wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ebpfprof.profile.model import Profile, Sample

_WAITS: Final = "contentions"
"""The sample type of profiles that count waits (runtime/pprof/pprof.go, Go 1.17 to 1.27)."""
_WAIT: Final = "sync.(*Cond).Wait"
_CALLER: Final = "net/http.(*connReader).abortPendingRead"


@dataclass(frozen=True, slots=True)
class ServedRequests:
    """How many requests ended, at least; `variance` is that of an estimate, else 0."""

    count: int
    variance: float

    @property
    def error(self) -> float:
        """The standard error of the count, as a part of it."""
        return math.sqrt(self.variance) / self.count if self.count else 0.0


def served_requests(profile: Profile) -> ServedRequests:
    """Those of HTTP/1 that ended in the time of a profile of waits: none for others."""
    if profile.sample_types[0].type != _WAITS:
        return ServedRequests(0, 0.0)
    waits = [sample for sample in profile.samples if _ends_request(sample)]
    return ServedRequests(
        sum(sample.values[0] for sample in waits), sum(sample.count_variance for sample in waits)
    )


def _ends_request(sample: Sample) -> bool:
    return [frame.function for frame in sample.frames[:2]] == [_WAIT, _CALLER]
