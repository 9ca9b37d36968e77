"""Waits and CPU time of services, for metrics: of a limited number of services, and of the rest.

A service keeps its place while it is recorded, and for an hour after that. Then another service may
replace it. Its sums are removed, and start at 0 if it returns: Prometheus sees a counter reset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ebpfprof.profile.length_counts import KnownWaits, LengthCounts
from ebpfprof.profile.service import ServiceIdentity

OTHERS: Final = ("other", "")
"""The name and namespace of the sum of all further services."""
KEPT_S: Final = 3600.0

ServiceKey = tuple[str, str]
"""A service's name and namespace."""


@dataclass(slots=True)
class ServiceSum:
    """The sums of one service, over all its processes."""

    amounts_ns: Counter[str] = field(default_factory=Counter)
    """By kind of profile, the time that goroutines waited or processors were used."""
    lengths: dict[str, LengthCounts] = field(default_factory=dict)
    """By kind of profile, how long waits were."""
    recorded_s: float = 0.0
    """How long its processes were recorded, summed up."""
    latest_s: float = 0.0
    """The end of its latest window, Unix time."""


class ServiceSums:
    """The sums of at most `limit` services by name. Calls are not concurrent."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._sums: dict[ServiceKey, ServiceSum] = {}

    def note(
        self,
        identity: ServiceIdentity,
        times_s: tuple[float, float],
        amounts_ns: Mapping[str, int],
        waits: Mapping[str, KnownWaits],
    ) -> None:
        """Add a window of a process: its begin and end (Unix time); by kind, amounts and waits."""
        if not self.limit:
            return
        begun_s, ended_s = times_s
        key = identity.service, identity.namespace
        if key not in self._sums and not self._has_room(ended_s):
            key = OTHERS
        sums = self._sums.setdefault(key, ServiceSum())
        sums.amounts_ns.update(amounts_ns)
        for kind, known in waits.items():
            sums.lengths.setdefault(kind, LengthCounts()).add(known)
        sums.recorded_s += max(0.0, ended_s - begun_s)
        sums.latest_s = max(sums.latest_s, ended_s)

    def named(self, identity: ServiceIdentity) -> ServiceKey | None:
        """The name under which a service is shown, perhaps OTHERS; None if none is shown."""
        if not self.limit:
            return None
        key = identity.service, identity.namespace
        return key if key in self._sums else OTHERS

    def all(self) -> dict[ServiceKey, ServiceSum]:
        """A copy of the sums by service, ordered by name."""
        return {
            key: replace(
                sums,
                amounts_ns=sums.amounts_ns.copy(),
                lengths={kind: waits.copy() for kind, waits in sums.lengths.items()},
            )
            for key, sums in sorted(self._sums.items())
        }

    def _has_room(self, now_s: float) -> bool:
        """Whether one more service may have a name; the one with the oldest window is removed."""
        named = {key: sums for key, sums in self._sums.items() if key != OTHERS}
        if len(named) < self.limit:
            return True
        oldest = min(named, key=lambda key: named[key].latest_s)
        if named[oldest].latest_s > now_s - KEPT_S:
            return False
        del self._sums[oldest]
        return True
