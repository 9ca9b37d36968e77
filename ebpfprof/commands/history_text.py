"""What `history` prints: the processes of a time, and what was not watched of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.commands.history_selection import name_of
from ebpfprof.commands.times import of_day, span_shown
from ebpfprof.console import columns
from ebpfprof.console.text import counted, duration, percent, printable, quantity
from ebpfprof.profilers.registry import find_kind, kinds
from ebpfprof.ring.coverage import (
    LEAST_GAP_NS,
    TimeWatched,
    agent_gaps,
    coverage,
    coverage_of_one,
    life,
)
from ebpfprof.ring.intervals import length_ns

if TYPE_CHECKING:
    from ebpfprof.ring.index import IndexedFile, IndexedProcess
    from ebpfprof.ring.intervals import Interval
    from ebpfprof.ring.reader import RecordedTime

_MOST_GAPS: Final = 6
_MOST_PROCESSES: Final = 6
_LEAST_NAME: Final = 24  # as tables have it


def kinds_in(time: RecordedTime, processes: Sequence[IndexedProcess]) -> list[str]:
    """The kinds of which there are files, in the order in which we show them."""
    numbers = {each.number for each in processes}
    found = {each.kind for each in time.files if each.process in numbers}
    return [kind.name for kind in kinds() if kind.name in found]


def list_text(
    time: RecordedTime,
    processes: Sequence[IndexedProcess],
    names: Sequence[str],
    *,
    width: int | None,
    color: bool,
) -> str:
    """The processes of a time, a row each, with their totals of these kinds."""
    span = time.begun_ns, time.until_ns
    lines = [
        span_shown(span),
        *gap_lines([(g.begun_ns, g.until_ns, g.reason) for g in agent_gaps(time)], span),
    ]
    rows = [_row(time, each, names) for each in processes]
    shown = list(names)
    longest = min(_LEAST_NAME, max(len(row.name + row.after) for row in rows))
    while width and len(shown) > 1 and _taken(shown, rows) + longest > width:
        shown.pop()
    headings = ["PID", "Time", "Watched", *map(_title, shown), "Service"]
    kept = 3 + len(shown)
    table = columns.table(
        headings,
        [columns.Row(row.cells[:kept], row.name, after=row.after) for row in rows],
        width=width,
        color=color,
    )
    notes = []
    if any("~" in cell for row in rows for cell in row.cells):
        notes.append("~ estimated: --name NAME shows the errors.")
    if left := names[len(shown) :]:
        notes.append(f"Also recorded: {', '.join(left)}: choose with --profile.")
    return "\n".join([*lines, "", table + "".join(f"{each}\n" for each in notes)])


def coverage_lines(time: RecordedTime, processes: Sequence[IndexedProcess]) -> list[str]:
    """How much of a time these processes were watched, and what is missing."""
    span = time.begun_ns, time.until_ns
    found = coverage(time, processes)
    keys = {each.process.key for each in processes}
    told = ", ".join(_ending(each, time) for each in processes[:_MOST_PROCESSES])
    more = "" if len(processes) <= _MOST_PROCESSES else " and others"
    noun = "process" if len(keys) == 1 else "processes"
    part = " of when it may have run" if found.absent else ""
    lines = [
        f"Watched: {duration(found.watched_ns)} of {duration(span[1] - span[0])} "
        f"({percent(found.share)}{part}); {len(keys)} {noun}: "
        f"{told}{more}."
    ]
    lines += gap_lines([(g.begun_ns, g.until_ns, g.reason) for g in found.gaps], span)
    absent = [(*each, "the agent saw no process of it") for each in found.absent]
    lines += gap_lines(absent, span, "Did not run")
    if edges := _edges(time, processes):
        lines.append(edges)
    return lines


def gap_lines(
    gaps: Sequence[tuple[int, int, str]], span: Interval, what: str = "Not watched"
) -> list[str]:
    """Times with a reason, a line each."""
    lines = [
        f"{what}: {of_day(begun_ns, span)} to {of_day(until_ns, span)}: {printable(reason)}."
        for begun_ns, until_ns, reason in gaps[:_MOST_GAPS]
    ]
    if rest := gaps[_MOST_GAPS:]:
        length = duration(length_ns((begun_ns, until_ns) for begun_ns, until_ns, _ in rest))
        lines.append(f"{what}: {counted(len(rest), 'more time')}, {length} together.")
    return lines


def why_nothing(time: RecordedTime, found: TimeWatched) -> str:
    """Why there is nothing of what was asked for, a clause."""
    span = time.begun_ns, time.until_ns
    agent = agent_gaps(time)
    if not agent:
        return "the agent ran all that time, and no such process did"
    down_ns = length_ns((gap.begun_ns, gap.until_ns) for gap in agent)
    if down_ns >= span[1] - span[0] - LEAST_GAP_NS:
        return agent[0].reason
    length = duration(down_ns)
    return f"no such process ran while the agent did; for {length} of that time, {agent[0].reason}"


def total(files: Sequence[IndexedFile], kind: str) -> tuple[float, bool] | None:
    """What tables show of a kind in all of a process' files, and whether it is an estimate.

    Of a kind that shows a moment it is that of the last one. None without files.
    """
    found = find_kind(kind)
    of_kind = [each for each in files if each.kind == kind]
    if not of_kind or found is None:
        return None
    if found.is_moment:
        of_kind = of_kind[-1:]
    index = found.shown[1] % len(found.sample_types)
    values = [each.totals[index] for each in of_kind if len(each.totals) > index]
    return float(sum(values)), any(each.is_estimate for each in of_kind)


def _row(time: RecordedTime, found: IndexedProcess, names: Sequence[str]) -> columns.Row:
    span = time.begun_ns, time.until_ns
    files = [each for each in time.files if each.process == found.number]
    watched = coverage_of_one(time, found)
    began_ns, last_ns = life(time, found)
    begin, end = max(began_ns, span[0]), min(last_ns, span[1])
    cells = [
        str(found.process.pid),
        f"{of_day(begin, span)[:-3]}-{of_day(end, span)[:-3]}",
        percent(watched.share),
        *(_cell(files, kind) for kind in names),
    ]
    process = found.process
    same = process.command == process.identity.service
    command = "" if same else f" ({process.command})"
    ended = "" if found.ended_ns is None or found.ended_ns > span[1] else ", ended"
    return columns.Row(cells, name_of(found) + command, after=ended)


def _cell(files: Sequence[IndexedFile], kind: str) -> str:
    found = total(files, kind)
    known = find_kind(kind)
    if found is None or known is None:
        return "-"
    value, is_estimate = found
    return ("~" if is_estimate else "") + quantity(value, known.unit, 2 if is_estimate else 3)


def _taken(shown: Sequence[str], rows: Sequence[columns.Row]) -> int:
    headings = ["PID", "Time", "Watched", *map(_title, shown)]
    return sum(
        2 + max(len(heading), *(len(row.cells[at]) for row in rows), 0)
        for at, heading in enumerate(headings)
    )


def _title(kind: str) -> str:
    found = find_kind(kind)
    title = found.title if found else kind
    return title[:1].upper() + title[1:]


def _ending(found: IndexedProcess, time: RecordedTime) -> str:
    pid = str(found.process.pid)
    span = time.begun_ns, time.until_ns
    if found.ended_ns is not None and found.ended_ns <= span[1]:
        return f"{pid} (ended {of_day(found.ended_ns, span)})"
    if found.process.began_ns > span[0]:
        return f"{pid} (began {of_day(found.process.began_ns, span)})"
    return pid


def _edges(time: RecordedTime, processes: Sequence[IndexedProcess]) -> str:
    """That windows begin before the time or end after it, a sentence; "" if they don't."""
    numbers = {each.number for each in processes}
    files = [each for each in time.files if each.process in numbers]
    if not files:
        return ""
    first = min(each.start_ns for each in files)
    last = max(each.end_ns for each in files)
    if first > time.begun_ns - LEAST_GAP_NS and last < time.until_ns + LEAST_GAP_NS:
        return ""
    span = min(first, time.begun_ns), max(last, time.until_ns)
    return (
        f"Its windows reach from {of_day(first, span)} to {of_day(last, span)}; each counts as a "
        "whole."
    )
