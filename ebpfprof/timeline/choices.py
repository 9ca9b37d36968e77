"""Goroutines that a user means, and from when until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.timeline.spans import spans
from ebpfprof.timeline.sweep import Chosen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ebpfprof.timeline.model import Timeline

# The runtime begins the first goroutine with a function of its own (runtime/proc.go, main).
_CALLED_BY: Final = {"main.main": "runtime.main"}


def chosen(timeline: Timeline, choice: str) -> list[Chosen]:
    """The goroutines that are meant: "G17", a function that they begin with, or "key=value".

    A label chooses the time from the first moment to the last at which it was seen.
    """
    if choice[:1] in "Gg" and choice[1:].isdigit():
        goids = {int(choice[1:])}
        return _of(timeline, goids)
    key, is_label, value = choice.partition("=")
    if is_label:
        return _of(timeline, None, (key, value))
    name = _CALLED_BY.get(choice, choice)
    return _of(
        timeline,
        {goroutine.goid for goroutine in timeline.goroutines.values() if goroutine.name == name},
    )


def between(of: Iterable[Chosen], begin_ns: int, end_ns: int) -> list[Chosen]:
    """What of the chosen times lies between two moments."""
    return [
        Chosen(goid, max(since_ns, begin_ns), min(until_ns, end_ns))
        for goid, since_ns, until_ns in of
        if since_ns < end_ns and begin_ns < until_ns
    ]


def _of(
    timeline: Timeline, goids: set[int] | None, label: tuple[str, str] | None = None
) -> list[Chosen]:
    """Those of `goids` (None: all), each from its first to its last moment, with the label."""
    times: dict[int, tuple[int, int]] = {}
    for span in spans(timeline):
        if goids is not None and span.goid not in goids:
            continue
        if label:
            labels = (
                *timeline.label_sets.get(span.labels, ()),
                *timeline.labels.get(span.goid, ()),
            )
            if all((candidate.key, str(candidate.value)) != label for candidate in labels):
                continue
        begin_ns, _ = times.get(span.goid, (span.begin_ns, 0))
        times[span.goid] = begin_ns, span.end_ns
    return [
        Chosen(goid, *candidate)
        for goid, candidate in sorted(times.items())
        if candidate[0] < candidate[1]
    ]
