"""What the time of goroutines depended on: themselves, the run queue, what others did meanwhile."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ebpfprof.timeline.links import Link, Links
from ebpfprof.timeline.parts import parts
from ebpfprof.timeline.sweep import NOTHING, START, Chosen, Sweep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ebpfprof.timeline.model import Timeline

_MOST_LINKS: Final = 8
Chain = tuple[Link, ...]
"""Who waited for whom: the last link is what the others waited for in the end."""


class Chains:
    """The chains of one timeline, and their sums."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.parts = parts(timeline)
        self.links = Links(timeline, self.parts)
        self.sweep = Sweep(self.parts, self.links.of, self.links.not_created)

    def path(self, of: Iterable[Chosen]) -> Counter[Chain]:
        """The ns that each chain took: what its last goroutine did while the others waited.

        Of a chain with many links, the first ones and the last are reported. Links that are alike
        and follow each other are one: a queue for a lock.
        """
        walk = _Tree()
        spent_ns: Counter[Chain] = Counter()
        for (state, link), ns in self.sweep.sums(of, walk).items():
            if chain := walk.chain(state, link):
                spent_ns[tuple(self.links.all[number] for number in chain)] += ns
        return spent_ns

    def everyone(self) -> list[Chosen]:
        """All goroutines, as long as they are there."""
        return [Chosen(goid, of[0].begin_ns, of[-1].end_ns) for goid, of in self.parts.of.items()]


class _Tree:
    """A walk that remembers all links of a chain."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, int, int]] = [(START, NOTHING, 0)]
        """By state: the one before, the last link, how many links there are."""
        self._after: dict[tuple[int, int], int] = {}

    def after(self, state: int, link: int) -> int:
        """The state behind one more link."""
        key = (state, link)
        number = self._after.get(key)
        if number is None:
            _, last, length = self._nodes[state]
            if last == link or length == _MOST_LINKS:
                number = state
            else:
                number = len(self._nodes)
                self._nodes.append((state, link, length + 1))
            self._after[key] = number
        return number

    def chain(self, state: int, last: int) -> list[int]:
        """The links of a state, and one more, unless that is NOTHING."""
        links = [] if last == NOTHING else [last]
        while state != START:
            state, link, _ = self._nodes[state]
            links.append(link)
        return links[::-1]
