"""Which time of a service was watched, and why the rest was not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ebpfprof.ring.index import IndexedProcess
from ebpfprof.ring.intervals import Interval, both, length_ns, union, within, without
from ebpfprof.ring.reader import RecordedTime

LEAST_GAP_NS: Final = 1_000_000_000
"""Shorter gaps come between one window and the next."""

FRESH_NS: Final = 30_000_000_000
"""An agent that noted so short a time ago that it runs still does."""

_MOST_WINDOWS: Final = 2


@dataclass(frozen=True, slots=True)
class Gap:
    """A time that was not watched, and why, a clause."""

    begun_ns: int
    until_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class TimeWatched:
    """Of a time, how much some processes were watched.

    `watched` is when at least one of them was. `absent` is when the agent ran and none of them did.
    `gaps` are when nobody watched, or one ran unrecorded; by time. `process_ns` is the time of
    all windows of all processes together.
    """

    span: Interval
    watched: Sequence[Interval]
    absent: Sequence[Interval]
    gaps: Sequence[Gap]
    process_ns: int

    @property
    def watched_ns(self) -> int:
        """How long at least one of them was watched."""
        return length_ns(self.watched)

    @property
    def share(self) -> float:
        """The same as a part of the time in which one may have run, 0 to 1."""
        most_ns = self.span[1] - self.span[0] - length_ns(self.absent)
        return min(1.0, self.watched_ns / most_ns) if most_ns > 0 else 0.0


def agent_gaps(time: RecordedTime) -> list[Gap]:
    """When the agent did not run."""
    reason = "no agent ran, according to its files" if time.inferred else "the agent did not run"
    return _gaps(without([(time.begun_ns, time.until_ns)], _ran(time)), reason)


def coverage(time: RecordedTime, processes: Sequence[IndexedProcess]) -> TimeWatched:
    """What was watched of a service with these processes.

    Others of it may have run while the agent did not.
    """
    agent = agent_gaps(time)
    down = [(gap.begun_ns, gap.until_ns) for gap in agent]
    return _coverage(time, processes, agent, down)


def coverage_of_one(time: RecordedTime, process: IndexedProcess) -> TimeWatched:
    """What was watched of one process, while it ran as far as is known."""
    lived = within([life(time, process)], (time.begun_ns, time.until_ns))
    agent = [
        Gap(*span, gap.reason)
        for gap in agent_gaps(time)
        for span in both([(gap.begun_ns, gap.until_ns)], lived)
    ]
    return _coverage(time, [process], agent, [(run.begun_ns, run.until_ns) for run in agent])


def _coverage(
    time: RecordedTime,
    processes: Sequence[IndexedProcess],
    agent: Sequence[Gap],
    down: Sequence[Interval],
) -> TimeWatched:
    span = time.begun_ns, time.until_ns
    numbers = {process.number for process in processes}
    windows = _windows(time, numbers)
    watched = union(window for spans in windows.values() for window in within(spans, span))
    lives = [life(time, process) for process in processes]
    absent = without([span], [*lives, *down, *watched])
    rest = without([span], [*absent, *down, *watched])
    gaps = [*agent, *_unrecorded(time, numbers, rest)]
    return TimeWatched(
        span,
        watched,
        [span for span in absent if span[1] - span[0] >= LEAST_GAP_NS],
        sorted(gaps, key=lambda gap: (gap.begun_ns, gap.until_ns)),
        sum(length_ns(within(spans, span)) for spans in windows.values()),
    )


def life(time: RecordedTime, process: IndexedProcess) -> Interval:
    """From when until when a process ran, as far as is known.

    An end that the agent did not see came after it ended itself, which then is the end.
    """
    seen = [file.end_ns for file in time.files if file.process == process.number]
    seen += [
        unrecorded.until_ns
        for unrecorded in time.unrecorded
        if unrecorded.process == process.number
    ]
    began_ns = process.process.began_ns
    if process.ended_ns is not None:
        return began_ns, process.ended_ns
    last_ns = max(seen, default=began_ns)
    for begun_ns, until_ns in union(_ran(time)):
        if begun_ns <= last_ns <= until_ns:
            return began_ns, until_ns
    return began_ns, last_ns


def _windows(time: RecordedTime, numbers: set[int]) -> Mapping[tuple[str, int, int], set[Interval]]:
    """The windows of each process, by its key: it may have several numbers."""
    windows = defaultdict[tuple[str, int, int], set[Interval]](set)
    for file in time.files:
        if file.process in numbers:
            key = time.processes[file.process].process.key
            windows[key].add((file.start_ns, file.end_ns))
    return windows


def _unrecorded(time: RecordedTime, numbers: set[int], rest: Sequence[Interval]) -> list[Gap]:
    """Gaps in the `rest` of the time, with the reasons that were noted."""
    gaps = []
    explained: list[Interval] = []
    for unrecorded in time.unrecorded:
        if unrecorded.process in numbers:
            spans = both(without(rest, explained), [(unrecorded.begun_ns, unrecorded.until_ns)])
            gaps += _gaps(spans, f"not recorded: {unrecorded.reason}")
            explained += spans
    return gaps + [
        replace(gap, reason=_why(time, gap))
        for gap in _gaps(without(rest, explained), "it ran, but was not recorded")
    ]


def _why(time: RecordedTime, gap: Gap) -> str:
    """The reason for a gap without a note."""
    windows = [file for file in time.files if abs(file.end_ns - gap.begun_ns) < LEAST_GAP_NS]
    length_ns = max((window.end_ns - window.start_ns for window in windows), default=0)
    if gap.until_ns - gap.begun_ns > _MOST_WINDOWS * length_ns:
        return gap.reason
    if gap.until_ns >= time.now_ns - FRESH_NS:
        return "the window of that time is not written yet"
    if any(abs(until_ns - gap.until_ns) < LEAST_GAP_NS for _, until_ns in time.runs):
        return "the agent ended before it wrote that window"
    return gap.reason


def _ran(time: RecordedTime) -> list[Interval]:
    """When the agent ran: as it noted, and when windows were recorded."""
    ran = [*time.runs, *((file.start_ns, file.end_ns) for file in time.files)]
    last_ns = max((end_ns for _, end_ns in ran), default=0)
    if time.now_ns - FRESH_NS <= last_ns < time.now_ns:  # it notes that now and then
        ran.append((last_ns, time.now_ns))
    return ran


def _gaps(spans: Iterable[Interval], reason: str) -> list[Gap]:
    return [Gap(*span, reason) for span in union(spans) if span[1] - span[0] >= LEAST_GAP_NS]
