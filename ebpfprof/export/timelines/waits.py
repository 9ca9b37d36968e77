"""Who waits for whom, for the page of a timeline (ebpfprof/web/waitgraph.js)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import printable
from ebpfprof.export.tables import chain_words
from ebpfprof.export.tables.waits import hidden_line, longest_sentence, waits_findings
from ebpfprof.timeline.links import TracedGroup
from ebpfprof.timeline.waitgraph import OutsideCause, WaitEdge, graph_of

if TYPE_CHECKING:
    from ebpfprof.timeline.model import Timeline

_MOST_EDGES: Final = 60
_MOST_CAUSES: Final = 4
_LEAST: Final = 0.001


def waits_document(timeline: Timeline) -> dict[str, Any]:
    """The nodes and the longest edges of the graph, without idle waits; times are ns."""
    graph = graph_of(timeline)
    whole_ns = sum(edge.ns for edge in graph.shown)
    edges = [edge for edge in graph.shown if edge.ns >= _LEAST * whole_ns][:_MOST_EDGES]
    numbers: dict[TracedGroup | OutsideCause, int] = {}
    for edge in edges:
        for goroutine in (edge.waiter, edge.waited_for):
            numbers.setdefault(goroutine, len(numbers))
    longest = longest_sentence(graph, timeline.begin_ns)
    return {
        "findings": [sentence for sentence in (*waits_findings(graph), longest) if sentence],
        "hidden": printable(hidden_line(graph).strip()),
        "left": len(graph.shown) - len(edges),
        "whole_ns": whole_ns,
        "nodes": [
            {**_node(number), "goroutines": graph.members.get(number, 0)}
            if isinstance(number, TracedGroup)
            else _node(number)
            for number in numbers
        ],
        "edges": [
            {
                "from": numbers[edge.waiter],
                "to": numbers[edge.waited_for],
                "ns": edge.ns,
                "count": edge.count,
                "longest_ns": edge.longest.length_ns if edge.longest else 0,
                "is_longest_cut": bool(edge.longest and edge.longest.is_cut),
                "reason": printable(_reason(edge)),
                "causes": [
                    [printable(f"{cause.who.name}: {chain_words.cause(cause)}"), ns]
                    for cause, ns in edge.causes.most_common(_MOST_CAUSES)
                ],
            }
            for edge in edges
        ],
    }


def _node(of: TracedGroup | OutsideCause) -> dict[str, Any]:
    if isinstance(of, OutsideCause):
        return {"name": printable(chain_words.outside(of)), "created": "", "is_outside": True}
    return {"name": printable(of.name), "created": printable(of.created), "is_outside": False}


def _reason(edge: WaitEdge) -> str:
    ((link, _),) = edge.reasons.most_common(1)
    return chain_words.waited_for(link)
