"""A timeline as a table: what the goroutines of each function did, and how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console import columns
from ebpfprof.console.text import counted, duration
from ebpfprof.export.tables.quantities import share
from ebpfprof.timeline.groups import groups
from ebpfprof.timeline.spans import RUNNABLE, RUNNING, SYSCALL

if TYPE_CHECKING:
    from ebpfprof.timeline.groups import FunctionGroup
    from ebpfprof.timeline.model import Timeline

_HEADINGS: Final = ("Running", "Runnable", "Longest", "Syscall", "Goroutines", "Function")

_ESTIMATE: Final = "Runnable is an estimate, a few us short; --exact-starts measures it.\n"


def render(timeline: Timeline, *, limit: int = 10, width: int | None, color: bool) -> str:
    """The busiest functions of goroutines; "Longest" is for how long one was runnable at most.

    The runtime's own are left out. For `width` and `color` see columns.table(). Ends with a
    newline.
    """
    shown = [group for group in groups(timeline) if not group.is_system]
    rows = [_row(row) for row in shown[:limit]]
    text = columns.table(_HEADINGS, rows, width=width, color=color)
    text += f"... and {len(shown) - limit} more\n" if len(shown) > limit else ""
    return text if timeline.has_exact_starts else text + _ESTIMATE


def _row(group: FunctionGroup) -> columns.Row:
    cells = (
        duration(group.spent[RUNNING]),
        duration(group.spent[RUNNABLE]),
        duration(group.longest[RUNNABLE]) if group.longest[RUNNABLE] else "-",
        duration(group.spent[SYSCALL]) if group.spent[SYSCALL] else "-",
        str(len(group.goids)),
    )
    return columns.Row(cells, group.name, below=_waits(group))


def _waits(group: FunctionGroup) -> str:
    """What they waited for, longest first."""
    whole_ns = sum(group.waits.values())
    if not whole_ns:
        return ""
    words = [f"{what} {share(ns, whole_ns) or '<0.1%'}" for what, ns in group.waits.most_common(3)]
    rest = len(group.waits) - len(words)
    more = [f"{counted(rest, 'more reason')}"] if rest > 0 else []
    return f"  waits {duration(whole_ns)}: {', '.join([*words, *more])}"
