"""The tasks of a program as a table: how long they took, and what they waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console import columns
from ebpfprof.console.text import counted, duration, printable
from ebpfprof.export.tables.quantities import share
from ebpfprof.timeline.spans import RUNNABLE, RUNNING, SYSCALL, WAITING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.timeline.tasks import TaskType

_HEADINGS: Final = ("Tasks", "p50", "p99", "Max", "Running", "Runnable", "Waited", "Task")
_MEDIAN: Final = 0.5
_SLOW: Final = 0.99
_MOST_REASONS: Final = 3
_UNKNOWN: Final = "(began before the trace)"
NOTE: Final = (
    "Running, Runnable and Waited: goroutines in regions of a task, or that began and ended it.\n"
)


def render(types: Sequence[TaskType], *, limit: int = 10, width: int | None, color: bool) -> str:
    """The types of tasks, those that goroutines waited for longest first.

    Lengths are of tasks that began and ended in the trace. For `width` and `color` see
    columns.table(). Ends with a newline.
    """
    rows = [_row(of) for of in types[:limit]]
    text = columns.table(_HEADINGS, rows, width=width, color=color)
    text += f"... and {len(types) - limit} more\n" if len(types) > limit else ""
    return text + NOTE


def _row(of: TaskType) -> columns.Row:
    lengths = [of.quantile_ns(part) for part in (_MEDIAN, _SLOW, 1)]
    spent = of.spent_ns[RUNNING], of.spent_ns[RUNNABLE], of.spent_ns[WAITING] + of.spent_ns[SYSCALL]
    cells = (str(of.tasks), *(duration(ns) if ns else "-" for ns in (*lengths, *spent)))
    return columns.Row(cells, printable(of.name) if of.name else _UNKNOWN, below=_waits(of))


def _waits(of: TaskType) -> str:
    """What goroutines waited for, longest first."""
    waits = of.waits_ns.copy()
    if of.spent_ns[SYSCALL]:
        waits["system calls"] = of.spent_ns[SYSCALL]
    whole_ns = waits.total()
    if not whole_ns:
        return ""
    words = [
        f"{printable(what)} {share(ns, whole_ns) or '<0.1%'}"
        for what, ns in waits.most_common(_MOST_REASONS)
    ]
    rest = len(waits) - len(words)
    more = [f"{counted(rest, 'more reason')}"] if rest > 0 else []
    return f"  waits for {', '.join([*words, *more])}"
