"""What goroutines did while they were observed, by place, and which part of the time that was.

The time of idle goroutines, which wait for work, is left out: it says nothing. What is left is the
time of requests and that of others. A request is a goroutine with a request handler on its stack;
of servers without a known handler, one that an accept loop has started for a connection. The time
in which such a goroutine waits for its client to send something is idle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.findings.activity import Activity
from ebpfprof.profile.handlers import is_of_request
from ebpfprof.profile.idle import rule_of
from ebpfprof.profile.operations import STATE, caller, operation_of

if TYPE_CHECKING:
    from ebpfprof.findings.moments import Moments
    from ebpfprof.profile.model import Frame, Profile, Sample

_RUNNABLE: Final = "runnable"
_SURE: Final = 2.0  # standard errors
_LEAST_REQUESTS: Final = 0.02
"""If requests have a smaller part of the time than this, shares are of all goroutines: a program
that also serves metrics is no server."""
_FOR_WORK: Final = ("chan receive", "select", "Cond.Wait")
"""Goroutines that wait so in the function that they began with are workers without work."""


class Share(NamedTuple):
    """A part of the time, 0 to 1, with its standard error."""

    value: float
    error: float

    @property
    def least(self) -> float:
        """What it is at least, within two standard errors."""
        return max(0.0, self.value - _SURE * self.error)


@dataclass(frozen=True)
class WorkTime:
    """All activities but idle ones, of `length_ns` nanoseconds. `idle_ns` is what was left out."""

    activities: tuple[Activity, ...]
    length_ns: int
    idle_ns: int

    @cached_property
    def total_ns(self) -> int:
        """The time of all goroutines that were not idle."""
        return sum(activity.ns for activity in self.activities)

    @cached_property
    def requests_ns(self) -> int:
        """The time of requests."""
        return sum(activity.ns for activity in self.activities if activity.is_request)

    @property
    def is_server(self) -> bool:
        """Whether shares are parts of the time of requests."""
        return self.requests_ns > _LEAST_REQUESTS * self.total_ns

    @property
    def of(self) -> str:
        """What shares are parts of, in words."""
        return "the time of requests" if self.is_server else "the time of goroutines at work"

    @property
    def who(self) -> str:
        """Whose time that is, in words."""
        return "requests" if self.is_server else "goroutines at work"

    def where(self, is_wanted: Callable[[Activity], bool]) -> tuple[Activity, ...]:
        """The activities that are wanted, the longest first."""
        chosen = (activity for activity in self.activities if is_wanted(activity))
        return tuple(sorted(chosen, key=lambda activity: -activity.ns))

    def share(self, activities: Iterable[Activity]) -> Share:
        """The part of the time that activities take.

        Of a server it is a part of the time of requests, if any of them is of a request; else of
        the time of all.
        """
        chosen = tuple(activities)
        of_requests = [activity for activity in chosen if activity.is_request]
        if self.is_server and of_requests:
            return _part(of_requests, self.requests_ns)
        return _part(chosen, self.total_ns)

    def mean(self, activities: Iterable[Activity]) -> float:
        """How many goroutines did this at a time, on average."""
        return sum(activity.ns for activity in activities) / self.length_ns if self.length_ns else 0


def _part(activities: Iterable[Activity], total_ns: int) -> Share:
    chosen = tuple(activities)
    if not total_ns:
        return Share(0.0, 0.0)
    part = sum(activity.ns for activity in chosen) / total_ns
    # The variances are those of parts of one total, which is as uncertain as they are.
    error = math.sqrt(sum(activity.variance for activity in chosen)) / total_ns
    return Share(part, error * (1 - part))


def work_of(wall: Profile, moments: Moments) -> WorkTime:
    """The activities of a wall profile; dumps show who waits for clients."""
    activities = []
    idle_ns = 0
    for sample in wall.samples:
        frames = tuple(sample.frames)
        state = next((str(label.value) for label in sample.labels if label.key == STATE), "")
        # A runnable one has got what it waited for.
        waits_for_client = frames in moments.client_waits and state != _RUNNABLE
        if waits_for_client or rule_of(wall.kind, sample) is not None:
            idle_ns += sample.values[-1]
            continue
        activities.append(
            Activity(
                state,
                *_operation(sample, state, frames),
                frames,
                sample.values[-1],
                sample.variance,
                is_of_request(sample),
            )
        )
    work = WorkTime(tuple(activities), wall.duration_ns, idle_ns)
    return work if work.is_server else _of_connections(work, moments.serving)


def _operation(sample: Sample, state: str, frames: Sequence[Frame]) -> tuple[str, Frame]:
    """What it is, and where; without a stack by its state and the function that it began with."""
    named = [frame for frame in frames if not frame.function.startswith("[")]
    if named and len(named) < len(frames):
        return state.removeprefix("sync."), caller(named)
    return operation_of(sample)


def _of_connections(work: WorkTime, serving: frozenset[str]) -> WorkTime:
    """The same, where goroutines that were started to serve a connection are requests.

    In a program without any, those that wait in the function that they began with are idle.
    """
    activities = (
        replace(
            activity, is_request=bool(activity.frames) and activity.frames[-1].function in serving
        )
        for activity in work.activities
    )
    by_connection = replace(work, activities=tuple(activities))
    if by_connection.is_server:
        return by_connection
    at_work = tuple(activity for activity in work.activities if not _waits_for_work(activity))
    idle_ns = work.idle_ns + work.total_ns - sum(activity.ns for activity in at_work)
    return WorkTime(at_work, work.length_ns, idle_ns)


def _waits_for_work(activity: Activity) -> bool:
    is_wait = activity.operation in _FOR_WORK
    return (
        is_wait
        and bool(activity.frames)
        and activity.place.function == activity.frames[-1].function
    )
