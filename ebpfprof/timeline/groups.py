"""Goroutines that begin with the same function, taken together: how long they did what."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ebpfprof.timeline.model import UNNAMED
from ebpfprof.timeline.spans import WAITING, Span, spans

if TYPE_CHECKING:
    from ebpfprof.timeline.model import Timeline


@dataclass(slots=True)
class FunctionGroup:
    """The goroutines of one function. `spent` has ns by Span.state, `waits` by the reason."""

    name: str
    is_system: bool
    goids: set[int] = field(default_factory=set)
    spent: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    longest: Counter[str] = field(default_factory=Counter)
    """By state, the longest span that began and ended within the timeline, in ns."""

    def add(self, span: Span) -> None:
        """Count a span of one of them."""
        self.goids.add(span.goid)
        self.spent[span.state] += span.length_ns
        if not span.is_cut:
            self.longest[span.state] = max(self.longest[span.state], span.length_ns)
        if span.state == WAITING:
            self.waits[span.what] += span.length_ns


def groups(timeline: Timeline) -> list[FunctionGroup]:
    """All groups, those that ran or were ready to run longest first."""
    by_name: dict[str, FunctionGroup] = {}
    for span in spans(timeline):
        goroutine = timeline.goroutines.get(span.goid)
        name = goroutine.name if goroutine else UNNAMED
        group = by_name.get(name)
        if group is None:
            group = by_name[name] = FunctionGroup(name, bool(goroutine and goroutine.is_system))
        group.add(span)
    return sorted(by_name.values(), key=lambda group: -_busy_ns(group))


def _busy_ns(group: FunctionGroup) -> int:
    return sum(ns for state, ns in group.spent.items() if state != WAITING)


def wakes(timeline: Timeline) -> dict[tuple[str, str], tuple[int, int]]:
    """Who woke whom, by functions: how often, and how long the woken had waited (ns)."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    waited: dict[int, int] = {}
    for span in spans(timeline):
        if span.state == WAITING:
            waited[span.goid] = span.length_ns
        elif span.by and span.goid in waited:
            row = counts[_name(timeline, span.by), _name(timeline, span.goid)]
            row[0] += 1
            row[1] += waited.pop(span.goid)
    return {names: (count, ns) for names, (count, ns) in counts.items()}


def _name(timeline: Timeline, goid: int) -> str:
    goroutine = timeline.goroutines.get(goid)
    return goroutine.name if goroutine else UNNAMED
