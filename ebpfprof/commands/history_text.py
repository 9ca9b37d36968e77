"""The text of `history`: the processes of a time, and the times that were not recorded."""

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
    agent_gaps,
    coverage,
    coverage_of_one,
    life,
)
from ebpfprof.ring.intervals import length_ns

if TYPE_CHECKING:
    from ebpfprof.ring.index import IndexedFile, IndexedFinding, IndexedProcess
    from ebpfprof.ring.intervals import Interval
    from ebpfprof.ring.reader import RecordedTime

_MOST_GAPS: Final = 6
_MOST_PROCESSES: Final = 6
_MOST_FINDINGS: Final = 12
_LEAST_NAME: Final = 24  # as in tables


def kinds_in(time: RecordedTime, processes: Sequence[IndexedProcess]) -> list[str]:
    """The kinds that have files, in the order of display."""
    numbers = {process.number for process in processes}
    names = {file.kind for file in time.files if file.process in numbers}
    return [kind.name for kind in kinds() if kind.name in names]


def list_text(
    time: RecordedTime,
    processes: Sequence[IndexedProcess],
    names: Sequence[str],
    *,
    width: int | None,
    color: bool,
) -> str:
    """The processes of a time, one row per process, with their totals of these kinds."""
    span = time.begun_ns, time.until_ns
    lines = [
        span_shown(span),
        *gap_lines([(g.begun_ns, g.until_ns, g.reason) for g in agent_gaps(time)], span),
    ]
    rows = [_row(time, process, names) for process in processes]
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
        notes.append("~ estimated; --name NAME shows the errors.")
    if left := names[len(shown) :]:
        notes.append(f"Also recorded: {', '.join(left)}: choose with --profile.")
    if findings := finding_lines(time, processes, is_named=True):
        notes += ["", *findings]
    return "\n".join([*lines, "", table + "".join(f"{note}\n" for note in notes)])


def coverage_lines(time: RecordedTime, processes: Sequence[IndexedProcess]) -> list[str]:
    """How much of a time these processes were recorded, and what is missing."""
    span = time.begun_ns, time.until_ns
    watched = coverage(time, processes)
    keys = {process.process.key for process in processes}
    pids = ", ".join(_ending(process, time) for process in processes[:_MOST_PROCESSES])
    more = "" if len(processes) <= _MOST_PROCESSES else " and others"
    noun = "process" if len(keys) == 1 else "processes"
    part = " of the time it may have run" if watched.absent else ""
    lines = [
        f"Watched: {duration(watched.watched_ns)} of {duration(span[1] - span[0])} "
        f"({percent(watched.share)}{part}); {len(keys)} {noun}: "
        f"{pids}{more}."
    ]
    lines += gap_lines([(g.begun_ns, g.until_ns, g.reason) for g in watched.gaps], span)
    absent = [(*interval, "the agent saw no such process") for interval in watched.absent]
    lines += gap_lines(absent, span, "Did not run")
    if edges := _edges(time, processes):
        lines.append(edges)
    return lines


def gap_lines(
    gaps: Sequence[tuple[int, int, str]], span: Interval, what: str = "Not watched"
) -> list[str]:
    """A line for each time, with a reason."""
    lines = [
        f"{what}: {of_day(begun_ns, span)} to {of_day(until_ns, span)}: {printable(reason)}."
        for begun_ns, until_ns, reason in gaps[:_MOST_GAPS]
    ]
    if rest := gaps[_MOST_GAPS:]:
        length = duration(length_ns((begun_ns, until_ns) for begun_ns, until_ns, _ in rest))
        lines.append(f"{what}: {counted(len(rest), 'more time')}, {length} in total.")
    return lines


def findings_of(
    time: RecordedTime, processes: Sequence[IndexedProcess]
) -> list[tuple[IndexedProcess, IndexedFinding]]:
    """What was found wrong with these processes in a time, by when it was first found."""
    by_key = {process.process.key: process for process in processes}
    return [(by_key[one.process], one) for one in time.findings if one.process in by_key]


def finding_lines(
    time: RecordedTime, processes: Sequence[IndexedProcess], *, is_named: bool
) -> list[str]:
    """A line for each finding, under a heading; none without findings.

    With `is_named`, the lines name the service.
    """
    span = time.begun_ns, time.until_ns
    findings = findings_of(time, processes)
    lines = ["Findings:"] if findings else []
    for process, one in findings[-_MOST_FINDINGS:]:
        begin = of_day(max(one.begun_ns, span[0]), span)
        end = of_day(min(one.until_ns, span[1]), span)
        when = begin if begin == end else f"{begin} to {end}"
        name = f"{name_of(process)} " if is_named else ""
        who = printable(f"{name}({process.process.pid})")
        lines.append(f"  {when}  {who}: {printable(one.finding.title)}")
    if (rest := len(findings) - _MOST_FINDINGS) > 0:
        lines.append(f"  {counted(rest, 'earlier finding')}.")
    return lines


def why_nothing(time: RecordedTime) -> str:
    """Why there is nothing, as a clause."""
    span = time.begun_ns, time.until_ns
    agent = agent_gaps(time)
    if not agent:
        return "the agent ran all that time, but no such process"
    down_ns = length_ns((gap.begun_ns, gap.until_ns) for gap in agent)
    if down_ns >= span[1] - span[0] - LEAST_GAP_NS:
        return agent[0].reason
    length = duration(down_ns)
    return f"no such process ran while the agent ran; for {length} of that time, {agent[0].reason}"


def total(files: Sequence[IndexedFile], kind: str) -> tuple[float, bool] | None:
    """The total that tables show of a kind, over the files of a process; if it is an estimate.

    For a kind that shows a moment, it is that of the last file. None without files.
    """
    known = find_kind(kind)
    of_kind = [file for file in files if file.kind == kind]
    if not of_kind or known is None:
        return None
    if known.is_moment:
        of_kind = of_kind[-1:]
    index = known.shown[1] % len(known.sample_types)
    values = [file.totals[index] for file in of_kind if len(file.totals) > index]
    return float(sum(values)), any(file.is_estimate for file in of_kind)


def _row(time: RecordedTime, indexed: IndexedProcess, names: Sequence[str]) -> columns.Row:
    span = time.begun_ns, time.until_ns
    files = [file for file in time.files if file.process == indexed.number]
    watched = coverage_of_one(time, indexed)
    began_ns, last_ns = life(time, indexed)
    begin, end = max(began_ns, span[0]), min(last_ns, span[1])
    cells = [
        str(indexed.process.pid),
        f"{of_day(begin, span)[:-3]}-{of_day(end, span)[:-3]}",
        percent(watched.share),
        *(_cell(files, kind) for kind in names),
    ]
    process = indexed.process
    same = process.command == process.identity.service
    command = "" if same else f" ({process.command})"
    ended = "" if indexed.ended_ns is None or indexed.ended_ns > span[1] else ", ended"
    return columns.Row(cells, name_of(indexed) + command, after=ended)


def _cell(files: Sequence[IndexedFile], kind: str) -> str:
    shown = total(files, kind)
    known = find_kind(kind)
    if shown is None or known is None:
        return "-"
    value, is_estimate = shown
    return ("~" if is_estimate else "") + quantity(value, known.unit, 2 if is_estimate else 3)


def _taken(shown: Sequence[str], rows: Sequence[columns.Row]) -> int:
    headings = ["PID", "Time", "Watched", *map(_title, shown)]
    return sum(
        2 + max(len(heading), *(len(row.cells[index]) for row in rows), 0)
        for index, heading in enumerate(headings)
    )


def _title(kind: str) -> str:
    known = find_kind(kind)
    title = known.title if known else kind
    return title[:1].upper() + title[1:]


def _ending(indexed: IndexedProcess, time: RecordedTime) -> str:
    pid = str(indexed.process.pid)
    span = time.begun_ns, time.until_ns
    if indexed.ended_ns is not None and indexed.ended_ns <= span[1]:
        return f"{pid} (ended {of_day(indexed.ended_ns, span)})"
    if indexed.process.began_ns > span[0]:
        return f"{pid} (began {of_day(indexed.process.began_ns, span)})"
    return pid


def _edges(time: RecordedTime, processes: Sequence[IndexedProcess]) -> str:
    """A sentence if windows begin before the time or end after it; else ""."""
    numbers = {process.number for process in processes}
    files = [file for file in time.files if file.process in numbers]
    if not files:
        return ""
    first = min(file.start_ns for file in files)
    last = max(file.end_ns for file in files)
    if first > time.begun_ns - LEAST_GAP_NS and last < time.until_ns + LEAST_GAP_NS:
        return ""
    span = min(first, time.begun_ns), max(last, time.until_ns)
    return f"Its windows are complete and span {of_day(first, span)} to {of_day(last, span)}."
