"""The summary of a recording that fits a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import wrapped
from ebpfprof.export.tables.quantities import PLUS_MINUS
from ebpfprof.overhead.budget import why_exceeded
from ebpfprof.overhead.busy import on_busy_processors
from ebpfprof.profilers.registry import kind_named

if TYPE_CHECKING:
    from ebpfprof.profilers.report_builder import Report

_MOST_ROWS: Final = 10
_MUCH: Final = 0.1  # of the processors' time
_NAME: Final = re.compile(r"([\w.+-]+-\d{8}-\d{6})\.(\w+)\.([\w.]+)")  # without quotes
_OF_A_TABLE: Final = 3  # a blank line, the heading, the column headings
_OF_A_SCREEN: Final = 3  # the command, the line about recording, the next prompt


def rows_that_fit(lines: int, columns: int, texts: Sequence[str], tables: int) -> int:
    """How many rows each table may have besides these texts, at least one."""
    shown = [line for text in texts for line in wrapped(text, columns).splitlines()]
    others = sum(math.ceil(max(1, len(line)) / columns) for line in shown)
    left = lines - _OF_A_SCREEN - others - _OF_A_TABLE * tables
    return max(1, min(_MOST_ROWS, left // max(1, tables)))


def cost(
    reports: Sequence[Report], *, own_part: float | None, is_long: bool, has_failed: bool
) -> list[str]:
    """The overhead and the accuracy of the recording: a line per process, more if `is_long`.

    If part of the recording `has_failed`, it does not claim that every wait was recorded.
    `own_part` is our share of the time of all processors (0 to 1), None if they were not busy. A
    large share has its own line.
    """
    lines = []
    for report in reports:
        of = f" of process {report.target.pid}" if len(reports) > 1 else ""
        if report.overhead:
            text = str(report.overhead) if is_long else report.overhead.summary
            length_ns = max((profile.duration_ns for profile in report.profiles), default=0)
            why = why_exceeded(report.overhead, report.bound, length_ns)
            lines.append(" ".join(filter(None, (f"Overhead{of}: {text}.", why))))
    if lines and not is_long:
        lines[-1] += " More with --long."
    if own_part is not None and (is_long or own_part >= _MUCH):
        lines.append(on_busy_processors(own_part))
    for report in reports:
        of = f"Process {report.target.pid}: " if len(reports) > 1 else ""
        lines += [
            f"{of}{line}" for line in _accuracy(report, is_long=is_long, has_failed=has_failed)
        ]
    return lines


def _accuracy(report: Report, *, is_long: bool, has_failed: bool) -> list[str]:
    if not report.records_waits:
        return []
    coverage = report.coverage
    if coverage is None or not report.sampled:
        accounts = [profile.account for profile in report.profiles if profile.account]
        lost = (account.completeness.lost for account in accounts)
        return [] if has_failed or any(lost) else ["Every wait was recorded."]
    lines = []
    for profile in report.profiles if is_long else ():
        if error := coverage.error(profile.kind):
            title = kind_named(profile.kind).title
            lines.append(f"{title[:1].upper()}{title[1:]}: {error}.".replace("+-", PLUS_MINUS))
    return [*lines, report.sampled]


def written(names: Sequence[str]) -> str:
    """The names of files; those of one recording as a pattern that a shell expands."""
    parts = [match.groups() for name in names if (match := _NAME.fullmatch(name))]
    if len(names) < 2 or len(parts) < len(names) or len({(h, s) for h, _, s in parts}) > 1:
        return "\n".join(names)
    head, _, suffix = parts[0]
    return f"{head}.{{{','.join(kind for _, kind, _ in parts)}}}.{suffix}"
