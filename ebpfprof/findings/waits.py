"""Waits of several places that belong together, as those for one peer or one channel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ebpfprof.findings.pace import often
from ebpfprof.findings.work import Share

if TYPE_CHECKING:
    from ebpfprof.findings.activity import Activity, Place
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.moments import Doing
    from ebpfprof.profile.model import Frame


@dataclass(slots=True)
class Waits:
    """Parts of activities, each with the standard error of the part, and the goroutines of dumps
    that were seen in them."""

    parts: list[tuple[Activity, float, float]] = field(default_factory=list)
    seen: list[Doing] = field(default_factory=list)

    def share(self, evidence: Evidence) -> Share:
        """The part of the time that they take, with the errors of both."""
        work = evidence.work
        value, variance = 0.0, 0.0
        for activity, of_it, error in self.parts:
            share = work.share([activity])
            value += of_it * share.value
            variance += (of_it * share.error) ** 2 + (error * share.value) ** 2
        return Share(value, math.sqrt(variance))

    def mean(self, evidence: Evidence) -> float:
        """How many goroutines wait there at a time, on average."""
        return sum(evidence.work.mean([activity]) * of_it for activity, of_it, _ in self.parts)

    def often(self, evidence: Evidence) -> str:
        """How often they do, and for how long, as pace.often() says it."""
        return often(evidence.moments, self.seen, self.mean(evidence))

    @property
    def place(self) -> Frame:
        """Where most of them wait. Raises ValueError if there are none."""
        return max(self.parts, key=lambda wait: wait[0].ns * wait[1])[0].place

    def add(self, activity: Activity, seen: Iterable[Doing], of_all: int) -> None:
        """Add an activity: of `of_all` goroutines that dumps saw there, these are meant."""
        chosen = list(seen)
        of_it = len(chosen) / max(1, of_all)
        error = math.sqrt(of_it * (1 - of_it) / max(1, of_all))
        self.parts.append((activity, of_it, error))
        self.seen += chosen


def waits_at(
    evidence: Evidence, places: Iterable[Place], is_meant: Callable[[Doing], bool]
) -> Waits:
    """The waits at some places, of the goroutines that are meant; of a server, of requests."""
    waits = Waits()
    wanted = frozenset(places)
    is_server = evidence.work.is_server
    for activity in evidence.work.activities:
        if activity.at in wanted and (activity.is_request or not is_server):
            seen = evidence.moments.of(activity)
            waits.add(activity, filter(is_meant, seen), len(seen))
    return waits
