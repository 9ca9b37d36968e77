"""What a recording gave, in as few lines as a terminal has: what matters first."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import percent

if TYPE_CHECKING:
    from ebpfprof.profilers.report_builder import Report

_MOST_ROWS: Final = 10
_NAME: Final = re.compile(r"([\w.+-]+-\d{8}-\d{6})\.(\w+)\.([\w.]+)")  # without quotes
_OF_A_TABLE: Final = 3  # an empty line, the heading, the headings of columns
_OF_A_SCREEN: Final = 4  # the command, that it records, an empty line, the next prompt


def rows_that_fit(lines: int, columns: int, texts: Sequence[str], tables: int) -> int:
    """How many rows each of some tables may have, besides these texts: one at least."""
    others = sum(math.ceil(max(1, len(line)) / columns) for t in texts for line in t.splitlines())
    left = lines - _OF_A_SCREEN - others - _OF_A_TABLE * tables
    return max(1, min(_MOST_ROWS, left // max(1, tables)))


def cost(report: Report) -> str:
    """What the recording cost the process, and what is estimated, in a line or two."""
    text = f"Process {report.target.pid} lost {percent(report.lost)} of its CPU time"
    if report.coverage and report.coverage.is_scaled:
        share = percent(report.coverage.share)
        text += f"; its waits were recorded {share} of the time, and scaled"
    return f"{text}. More with --long."


def written(names: Sequence[str]) -> str:
    """The names of files, those of one recording together, as a shell expands them."""
    parts = [match.groups() for name in names if (match := _NAME.fullmatch(name))]
    if len(names) < 2 or len(parts) < len(names) or len({(h, s) for h, _, s in parts}) > 1:
        return "\n".join(names)
    head, _, suffix = parts[0]
    return f"{head}.{{{','.join(kind for _, kind, _ in parts)}}}.{suffix}"
