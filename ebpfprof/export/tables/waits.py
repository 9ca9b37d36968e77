"""The table of who waits for whom, and the sentence about it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ebpfprof.console import columns
from ebpfprof.console.text import duration, listed, percent, printable, wrapped
from ebpfprof.export.tables import chain_words
from ebpfprof.export.tables.quantities import share
from ebpfprof.timeline.cycles import Cycle, cycles
from ebpfprof.timeline.links import TracedGroup
from ebpfprof.timeline.parts import Did

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.timeline.waitgraph import Cause, LongestWait, WaitEdge, WaitGraph

_HEADINGS: Final = ("Waited", "Share", "Waits", "Longest", "Who waits")
_S: Final = 1_000_000_000
_MOST: Final = 0.5
_MUCH: Final = 0.1
_MOST_CYCLES: Final = 3
_LEAST: Final = 0.001
_LEAST_WAITING: Final = 0.1  # goroutines that wait at a time, on average
_MOST_CAUSES: Final = 3
_SMALL: Final = 0.01
_MOST_IDLE: Final = 2  # they fit into 80 columns
_MOST_NAMES: Final = 4
_CUT: Final = "; a pause of the recording cuts it"


def render(graph: WaitGraph, *, limit: int = 10, width: int | None, color: bool) -> str:
    """The longest waits by groups: who, for whom, and what that one did or waited for meanwhile.

    For `width` and `color` see columns.table(). Ends with a newline.
    """
    whole_ns = sum(edge.ns for edge in graph.shown)
    shown = [edge for edge in graph.shown if edge.ns >= _LEAST * whole_ns]
    names = Counter(member.name for member in graph.members)
    rows = [row for edge in shown[:limit] for row in _rows(edge, whole_ns, names)]
    text = columns.table(_HEADINGS, rows, width=width, color=color) if rows else ""
    left = len(graph.shown) - min(limit, len(shown))
    text += f"... and {left} more\n" if left else ""
    hidden = hidden_line(graph)
    return text + (wrapped(hidden, width) if width else hidden) or "  Nobody waited.\n"


def waits_findings(graph: WaitGraph) -> list[str]:
    """What most of the waiting is for, printable sentences: cycles, or what it is for in the end.

    None if nothing stands out.
    """
    whole_ns = sum(edge.ns for edge in graph.shown)
    if whole_ns < _LEAST_WAITING * graph.length_ns or not whole_ns:
        return []
    open_ns = sum(edge.ns for edge in graph.shown if _is_open(edge))
    if open_ns >= _MOST * whole_ns:
        return [
            f"{percent(open_ns / whole_ns)} of the waiting had not ended when the trace did; "
            "ebpfprof dump shows which goroutine may hold what is waited for."
        ]
    much = [cycle for cycle in cycles(graph) if cycle.own_ns >= _MUCH * whole_ns][:_MOST_CYCLES]
    findings = [printable(cycle_sentence(cycle)) for cycle in much]
    if not much or much[0].own_ns < _MOST * whole_ns:
        findings += _cause_sentence(graph, whole_ns)
    return findings


def longest_sentence(graph: WaitGraph, begin_ns: int) -> str:
    """The longest wait that is not idle, printable; "" if there is none. The trace began then."""
    longest = [(edge.longest, edge) for edge in graph.shown if edge.longest]
    if not longest:
        return ""
    wait, edge = max(longest, key=lambda pair: pair[0].length_ns)
    other = edge.waited_for
    if isinstance(other, TracedGroup):
        whom = f"G{wait.waker} {other.name}"
    else:
        whom = chain_words.outside(other)
    at_s = (wait.begin_ns - begin_ns) / _S
    return printable(
        f"The longest wait: {_at_least(wait)}{duration(wait.length_ns)} from {at_s:.3f} s on, of "
        f"G{wait.goid} {edge.waiter.name} for {whom}{_CUT if wait.is_cut else ''}."
    )


def _at_least(wait: LongestWait) -> str:
    return "at least " if wait.is_cut else ""


def _is_open(edge: WaitEdge) -> bool:
    other = edge.waited_for
    return not isinstance(other, TracedGroup) and other.did is Did.GOES_ON


def _cause_sentence(graph: WaitGraph, whole_ns: int) -> list[str]:
    causes: Counter[Cause] = Counter()
    for edge in graph.shown:
        causes.update(edge.causes)
    ((cause, ns),) = causes.most_common(1)
    if ns < _MOST * whole_ns:
        return []
    waiters: Counter[TracedGroup] = Counter()
    for edge in graph.shown:
        waiters[edge.waiter] += edge.causes[cause]
    who = waiters.most_common(1)[0][0]
    most = ""
    if who != cause.who:
        own = [edge for edge in graph.shown if edge.waiter == who]
        lock = _lock_clause(max(own, key=lambda edge: edge.causes[cause]))
        most = f"; {who.name} waits most for that{lock}"
    return [
        printable(
            f"{percent(ns / whole_ns)} of the waiting was in the end for {cause.who.name}, which "
            f"{_clause(cause)}{most}."
        )
    ]


def _lock_clause(edge: WaitEdge) -> str:
    """For which lock most of the waits are, and who held it; "" if they are for no known lock."""
    ((link, _),) = edge.reasons.most_common(1)
    other = edge.waited_for
    if not (link.is_lock and link.on and link.on.name and isinstance(other, TracedGroup)):
        return ""
    return f": for {link.on.name} ({link.word}), {chain_words.holder(link)} {other.name}"


def cycle_sentence(cycle: Cycle) -> str:
    """Who waits for each other, and who of them ran meanwhile."""
    names = [group.name for group in cycle.groups]
    shown = names[:_MOST_NAMES]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} others")
    subject = (
        f"{listed(shown)} wait for each other"
        if len(names) > 1
        else f"Goroutines of {shown[0]} wait for each other"
    )
    texts: Counter[str] = Counter()
    for cause, ns in cycle.causes.items():
        if cause.did is Did.QUEUE:
            texts["one that was in the run queue"] += ns
        else:
            texts[f"{cause.who.name}, which {_clause(cause)}"] += ns
    parts = [
        f"{percent(ns / cycle.own_ns)} for {text}" for text, ns in texts.most_common(_MOST_CAUSES)
    ]
    rest = 1 - cycle.own_ns / cycle.waited_ns
    but = f" but for {percent(rest)}" if rest >= _SMALL else ""
    alone = f"A cycle: {subject}, and for nothing else{but}"
    return f"{alone} ({duration(cycle.own_ns)}): {listed(parts)}."


def _clause(cause: Cause) -> str:
    return chain_words.clause(cause.did, cause.detail, cause.detail)


def _rows(edge: WaitEdge, whole_ns: int, names: Counter[str]) -> Iterator[columns.Row]:
    longest = "-"
    if edge.longest:
        longest = f"{'>' if edge.longest.is_cut else ''}{duration(edge.longest.length_ns)}"
    cells = (duration(edge.ns), share(edge.ns, whole_ns), str(edge.count), longest)
    is_several = names[edge.waiter.name] > 1 and edge.waiter.created
    below = f"  created by {edge.waiter.created}" if is_several else ""
    yield columns.Row(cells, edge.waiter.name, after=_reason(edge), below=below)
    other = edge.waited_for
    if not isinstance(other, TracedGroup):
        yield columns.Row(
            ("", "", "", ""), chain_words.outside(other), before="  for ", is_dim=True
        )
        return
    yield columns.Row(("", "", "", ""), other.name, before="  for ", is_dim=True)
    for cause, ns in edge.causes.most_common(_MOST_CAUSES):
        if ns < _SMALL * whole_ns:
            break
        yield columns.Row(
            (duration(ns), share(ns, whole_ns), "", ""),
            f"{cause.who.name}: {chain_words.cause(cause)}",
            before="    in the end ",
            is_dim=True,
        )


def _reason(edge: WaitEdge) -> str:
    ((link, ns),) = edge.reasons.most_common(1)
    words = chain_words.waited_for(link)
    more = f" {share(ns, edge.ns)}" if len(edge.reasons) > 1 else ""
    return f" ({words}{more})" if words else ""


def hidden_line(graph: WaitGraph) -> str:
    """What was left out as idle, in a line with its newline; "" if nothing was."""
    if not graph.hidden:
        return ""
    named = ", ".join(f"{name} {duration(ns)}" for name, ns in graph.hidden.most_common(_MOST_IDLE))
    more = ", ..." if len(graph.hidden) > _MOST_IDLE else ""
    return f"Hidden as idle: {duration(graph.hidden.total())} ({named}{more})\n"
