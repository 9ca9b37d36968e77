"""Cycles: groups of goroutines that wait for each other and for hardly anything else.

As long as they do, nothing outside makes them faster: one of them runs at each moment, or is in a
run queue, and all others of the cycle wait for that one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.timeline.links import TracedGroup
from ebpfprof.timeline.parts import Did

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ebpfprof.timeline.waitgraph import Cause, WaitEdge, WaitGraph

_LEAST: Final = 0.05  # of a group's waiting; an edge with less makes no cycle
_NEARLY_ALL: Final = 0.9
_OWN: Final = frozenset({Did.RUN, Did.ASSIST, Did.NO_PROCESSOR, Did.QUEUE, Did.STOPPED, Did.CALL})


@dataclass(frozen=True, slots=True)
class Cycle:
    """Classes that wait for each other; `waited_ns` is all their waiting, `own_ns` what of it
    was in the end for one of them that did not wait, with what those did in `causes`.
    """

    groups: tuple[TracedGroup, ...]
    waited_ns: int
    own_ns: int
    causes: Counter[Cause]


def cycles(graph: WaitGraph) -> list[Cycle]:
    """The cycles of a graph, that with most waiting first.

    Idle waits count: that a worker waits for work is half of a circle. But one of waits that are
    all idle is none.
    """
    edges: dict[TracedGroup, list[WaitEdge]] = defaultdict(list)
    for edge in graph.edges:
        if not edge.waiter.is_system:
            edges[edge.waiter].append(edge)
    possible = (_cycle(circle, edges) for circle in _circles(_neighbours(edges)))
    return sorted((cycle for cycle in possible if cycle), key=lambda cycle: -cycle.own_ns)


def _neighbours(
    edges: Mapping[TracedGroup, list[WaitEdge]],
) -> dict[TracedGroup, set[TracedGroup]]:
    neighbours = {}
    for waiter, of in edges.items():
        least_ns = _LEAST * sum(edge.ns for edge in of)
        between: Counter[TracedGroup] = Counter()
        for edge_of in of:
            if isinstance(edge_of.waited_for, TracedGroup):
                between[edge_of.waited_for] += edge_of.ns
        neighbours[waiter] = {other for other, ns in between.items() if ns >= least_ns}
    return neighbours


def _cycle(
    circle: frozenset[TracedGroup], edges: Mapping[TracedGroup, list[WaitEdge]]
) -> Cycle | None:
    waited_ns, is_idle = 0, True
    causes: Counter[Cause] = Counter()
    for group in circle:
        for edge in edges[group]:
            waited_ns += edge.ns
            is_idle &= edge.is_idle or edge.waited_for not in circle
            for cause, ns in edge.causes.items():
                if cause.who in circle and cause.did in _OWN:
                    causes[cause] += ns
    own_ns = causes.total()
    if is_idle or own_ns < _NEARLY_ALL * waited_ns:
        return None
    return Cycle(tuple(sorted(circle)), waited_ns, own_ns, causes)


def _circles(
    neighbours: Mapping[TracedGroup, set[TracedGroup]],
) -> Iterator[frozenset[TracedGroup]]:
    """The groups that reach each other (Tarjan's algorithm), also one that reaches itself."""
    index: dict[TracedGroup, int] = {}
    low: dict[TracedGroup, int] = {}
    path: dict[TracedGroup, None] = {}
    for root in neighbours:
        if root in index:
            continue
        calls = [(root, iter(sorted(neighbours[root])))]
        index[root] = low[root] = len(index)
        path[root] = None
        while calls:
            here, others = calls[-1]
            other = next(others, None)
            if other is None:
                calls.pop()
                if calls:
                    low[calls[-1][0]] = min(low[calls[-1][0]], low[here])
                if low[here] == index[here]:
                    circle = set()
                    while here not in circle:
                        circle.add(path.popitem()[0])
                    if len(circle) > 1 or here in neighbours[here]:
                        yield frozenset(circle)
            elif other not in index and other in neighbours:
                index[other] = low[other] = len(index)
                path[other] = None
                calls.append((other, iter(sorted(neighbours[other]))))
            elif other in path:
                low[here] = min(low[here], index[other])
