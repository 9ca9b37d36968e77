"""What services waited and used, for metrics: of a bounded number of them, and the rest together.

A service keeps its place while it is recorded, and for an hour after. Then another one may take it:
its sums go, and begin at 0 if it comes again, which Prometheus takes for a counter that was reset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ebpfprof.profile.service import ServiceIdentity

OTHERS: Final = ("other", "")
"""The name and namespace under which all further services are added up."""
KEPT_S: Final = 3600.0

ServiceKey = tuple[str, str]
"""A service's name and namespace."""


@dataclass(slots=True)
class ServiceSum:
    """The sums of one service, all its processes together."""

    amounts_ns: Counter[str] = field(default_factory=Counter)
    """By kind of profile, the time that goroutines waited or processors were used."""
    recorded_s: float = 0.0
    """For how long its processes were recorded, added up."""
    latest_s: float = 0.0
    """When its latest window ended, Unix time."""


class ServiceSums:
    """The sums of at most `limit` services by name. Calls are not concurrent."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sums: dict[ServiceKey, ServiceSum] = {}

    def note(
        self,
        identity: ServiceIdentity,
        times_s: tuple[float, float],
        amounts_ns: Mapping[str, int],
    ) -> None:
        """Add a window of a process: from when to when (Unix time), and its amounts by kind."""
        if not self._limit:
            return
        begun_s, ended_s = times_s
        key = identity.service, identity.namespace
        if key not in self._sums and not self._has_room(ended_s):
            key = OTHERS
        found = self._sums.setdefault(key, ServiceSum())
        found.amounts_ns.update(amounts_ns)
        found.recorded_s += max(0.0, ended_s - begun_s)
        found.latest_s = max(found.latest_s, ended_s)

    def all(self) -> dict[ServiceKey, ServiceSum]:
        """A copy of the sums by service, in order of their names."""
        return {
            key: replace(each, amounts_ns=each.amounts_ns.copy())
            for key, each in sorted(self._sums.items())
        }

    def _has_room(self, now_s: float) -> bool:
        """Whether one more may have a name; the one that was not seen for longest makes room."""
        named = {key: each for key, each in self._sums.items() if key != OTHERS}
        if len(named) < self._limit:
            return True
        oldest = min(named, key=lambda key: named[key].latest_s)
        if named[oldest].latest_s > now_s - KEPT_S:
            return False
        del self._sums[oldest]
        return True
