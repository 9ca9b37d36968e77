"""What a goroutine's time depended on: itself, the run queue, what others did meanwhile.

From the end of a time back to its beginning: where the goroutine waited, the one that woke it is
followed, but only for the time of that wait (else the walk would leave for what others did for
themselves: golang/go#57175). So each moment is charged once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.timeline.spans import RUNNABLE, WAITING, Span, spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ebpfprof.timeline.model import Timeline

_MOST_LINKS: Final = 64
NOT_CREATED: Final = "not created yet"
"""What a goroutine does before there is one."""
Chosen = tuple[int, int, int]
"""A goroutine, and from when until when (CLOCK_MONOTONIC, ns)."""


class Link(NamedTuple):
    """One goroutine of a chain, and what it did: the first waits for the second, and so on.

    `stack` is a key of Timeline.stacks: where it waited, or is in a system call. `on` is one of
    Timeline.objects, or 0: what it waited for.
    """

    goid: int
    what: str
    stack: int
    on: int = 0


class CriticalPaths:
    """Finds the paths of one timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._spans: dict[int, list[Span]] = defaultdict(list)
        for span in spans(timeline):
            self._spans[span.goid].append(span)
        self._begins = {
            goid: [span.begin_ns for span in found] for goid, found in self._spans.items()
        }

    def chosen(self, what: str) -> list[Chosen]:
        """The goroutines that are meant: "G17", a function that they begin with, or "key=value".

        A label chooses the time from the first moment to the last at which it was seen.
        """
        if what[:1] in "Gg" and what[1:].isdigit():
            return self._whole([int(what[1:])])
        key, is_label, value = what.partition("=")
        if is_label:
            return list(self._labelled(key, value))
        named = self._timeline.goroutines.values()
        return self._whole(sorted(each.goid for each in named if each.name == what))

    def path(self, of: Iterable[Chosen]) -> Counter[tuple[Link, ...]]:
        """The ns that each chain took: what its last goroutine did while the others waited."""
        found: Counter[tuple[Link, ...]] = Counter()
        for goid, begin_ns, end_ns in of:
            for chain, ns in self._walk(goid, begin_ns, end_ns, ()):
                found[chain] += ns
        return found

    def _whole(self, goids: Iterable[int]) -> list[Chosen]:
        return [
            (goid, self._spans[goid][0].begin_ns, self._spans[goid][-1].end_ns)
            for goid in goids
            if goid in self._spans
        ]

    def _labelled(self, key: str, value: str) -> Iterator[Chosen]:
        for goid, found in self._spans.items():
            before = self._timeline.labels.get(goid, ())
            with_label = [
                span
                for span in found
                for label in (*self._timeline.label_sets.get(span.labels, ()), *before)
                if (label.key, str(label.value)) == (key, value)
            ]
            if with_label:
                yield goid, with_label[0].begin_ns, with_label[-1].end_ns

    def _walk(
        self, goid: int, begin_ns: int, end_ns: int, chain: tuple[Link, ...]
    ) -> Iterator[tuple[tuple[Link, ...], int]]:
        found = self._spans.get(goid, [])
        number = bisect_left(self._begins.get(goid, []), end_ns) - 1
        while number >= 0 and end_ns > begin_ns:
            span = found[number]
            until_ns = min(end_ns, max(begin_ns, span.end_ns))
            if chain and until_ns < end_ns:  # nothing is known of it then
                yield chain, end_ns - until_ns
            since_ns = max(begin_ns, span.begin_ns)
            if until_ns > since_ns:
                link = (*chain, _link(span))
                waker = self._waker(span, found, number, until_ns)
                if waker and len(chain) < _MOST_LINKS:
                    yield from self._walk(waker, since_ns, until_ns, link)
                else:
                    yield link, until_ns - since_ns
            end_ns = min(end_ns, span.begin_ns)
            number -= 1
        if chain and end_ns > begin_ns:
            yield from self._before(found, begin_ns, end_ns, chain)

    def _before(
        self, found: list[Span], begin_ns: int, end_ns: int, chain: tuple[Link, ...]
    ) -> Iterator[tuple[tuple[Link, ...], int]]:
        """Before a goroutine was there: what the one did that created it."""
        creator = found[0].by if found else 0
        if creator in self._spans and len(chain) < _MOST_LINKS:
            link = (*chain, Link(found[0].goid, NOT_CREATED, 0))
            yield from self._walk(creator, begin_ns, end_ns, link)
        else:
            yield chain, end_ns - begin_ns

    def _waker(self, span: Span, found: list[Span], number: int, until_ns: int) -> int:
        """The goroutine that ended a wait within the time; 0 if it is not known."""
        is_over = span.state == WAITING and until_ns == span.end_ns and number + 1 < len(found)
        by = found[number + 1].by if is_over else 0
        return by if by in self._spans and by != span.goid else 0


def _link(span: Span) -> Link:
    stack = span.stack if span.state != RUNNABLE else 0
    return Link(span.goid, span.what, stack, span.on if span.state == WAITING else 0)
