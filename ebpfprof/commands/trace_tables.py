"""The tables of `ebpfprof trace`, each after a sentence that summarises it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted, duration, printable, wrapped
from ebpfprof.export.tables import paths, requests, tasks, waits
from ebpfprof.export.tables import timeline as busiest
from ebpfprof.timeline.choices import between, chosen
from ebpfprof.timeline.critical import Chains
from ebpfprof.timeline.requests import connection, is_address
from ebpfprof.timeline.sweep import Chosen
from ebpfprof.timeline.tasks import task_types
from ebpfprof.timeline.waitgraph import graph_of, recorded_ns

if TYPE_CHECKING:
    from ebpfprof.timeline.model import Timeline

_S: Final = 1_000_000_000
_NOBODY: Final = (
    "  No such goroutine. The table above has functions; G17 selects a goroutine by its id,\n"
    "  KEY=VALUE goroutines by label, 10.0.0.2:4242 or :8080 a connection.\n"
)
Part = tuple[str, str]
"""A heading, and the text below it, which ends with a newline."""


@dataclass(frozen=True)
class Asked:
    """The tables to show besides the busiest goroutines; times in seconds since the start."""

    path_of: str | None = None
    from_s: float = 0.0
    to_s: float | None = None
    most_waits: int = 0
    """How many sentences and rows the table of waits has; 0: no table."""


class TraceTables:
    """The tables of one timeline, for `width` and `color` as in columns.table()."""

    def __init__(self, timeline: Timeline, *, width: int | None, color: bool) -> None:
        self._timeline, self._width, self._color = timeline, width, color

    def parts(self, asked: Asked) -> list[Part]:
        """All tables in order: who waits for whom comes first."""
        timeline = self._timeline
        length_ns = timeline.end_ns - timeline.begin_ns
        length = duration(length_ns)
        whole_ns = recorded_ns(timeline)
        if whole_ns < length_ns:
            length += f" with pauses, {duration(whole_ns)} recorded"
        text = busiest.render(timeline, width=self._width, color=self._color)
        process = f"process {timeline.pid} ({timeline.command})"
        parts = [self._waits(asked.most_waits)] if asked.most_waits else []
        parts.append((f"Goroutines of {process}, {length}", text))
        if types := task_types(timeline):
            table = tasks.render(types, width=self._width, color=self._color)
            parts.append((f"Tasks of {process}", table))
        if asked.path_of is not None:
            parts += self._path(asked.path_of, asked)
        return parts

    @cached_property
    def _chains(self) -> Chains:
        return Chains(self._timeline)

    def _waits(self, most: int) -> Part:
        graph = graph_of(self._timeline)
        longest = waits.longest_sentence(graph, self._timeline.begin_ns)
        findings = list(filter(None, (*waits.waits_findings(graph), longest)))
        sentences = "".join(f"{finding}\n" for finding in findings[:most])
        if self._width:
            sentences = wrapped(sentences, self._width)
        table = waits.render(graph, limit=most, width=self._width, color=self._color)
        return "Who waits for whom", sentences + table

    def _path(self, what: str, asked: Asked) -> list[Part]:
        """The critical path of the chosen goroutines."""
        shown = printable(what)
        begin_ns = self._timeline.begin_ns + round(asked.from_s * _S)
        end_ns = self._timeline.end_ns
        if asked.to_s is not None:
            end_ns = min(end_ns, self._timeline.begin_ns + round(asked.to_s * _S))
        if is_address(what):
            return self._requests(what, begin_ns, end_ns)
        whole = chosen(self._timeline, what)
        of = between(whole, begin_ns, end_ns)
        if not of:
            text = _NOBODY
            if whole:
                length = duration(self._timeline.end_ns - self._timeline.begin_ns)
                text = f"  It did not exist then; the trace is {length} long.\n"
            return [(f"What {shown} waited for", text)]
        length_ns = sum(one.end_ns - one.begin_ns for one in of)
        heading = f"The time of {shown} ({counted(len(of), 'goroutine')}, {duration(length_ns)})"
        return [(heading, self._tree(of))]

    def _requests(self, address: str, begin_ns: int, end_ns: int) -> list[Part]:
        """The requests of a connection, and the slowest of them."""
        on_connection = connection(self._timeline, address)
        of = [
            one for one in on_connection.requests if one.begin_ns < end_ns and begin_ns < one.end_ns
        ]
        what = "Requests" if on_connection.is_served else "Work between waits"
        heading = f"{what} on {printable(address)}"
        text = requests.render(on_connection, of, self._timeline)
        times = [Chosen(one.goid, one.begin_ns, one.end_ns) for one in of]
        parts = [(heading, text)]
        if of:
            parts.append(
                ("What their time depended on", self._tree(between(times, begin_ns, end_ns)))
            )
        if len(of) > 1:
            slowest = max(of, key=lambda one: one.length_ns)
            summary = requests.described(slowest, self._timeline)
            parts.append((f"The slowest: {summary}", self._tree([Chosen(*slowest[:3])])))
        return parts

    def _tree(self, of: list[Chosen]) -> str:
        path = self._chains.path(of)
        sentence = printable(paths.path_finding(path))
        table = paths.render_path(path, width=self._width, color=self._color)
        return (f"{sentence}\n" if sentence else "") + table
