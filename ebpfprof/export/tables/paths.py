"""Tables of what goroutines waited for: paths, and who woke whom."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import duration
from ebpfprof.export.tables import columns
from ebpfprof.export.tables.quantities import share
from ebpfprof.timeline.groups import wakes
from ebpfprof.timeline.model import UNNAMED

if TYPE_CHECKING:
    from ebpfprof.timeline.critical import Link
    from ebpfprof.timeline.model import Timeline

_PATH_HEADINGS: Final = ("Time", "Share", "What it depended on")
_WAKE_HEADINGS: Final = ("Waited", "Wakes", "Mean", "Who waited")


def render_path(
    path: Counter[tuple[Link, ...]],
    timeline: Timeline,
    *,
    limit: int = 12,
    width: int | None,
    color: bool,
) -> str:
    """The chains that took most, by functions: a goroutine, what it waited for, what that one did.

    For `width` and `color` see columns.table(). Ends with a newline.
    """
    named: Counter[tuple[str, ...]] = Counter()
    for chain, ns in path.items():
        named[tuple(_text(link, timeline) for link in chain)] += ns
    whole_ns = sum(named.values())
    rows = []
    for texts, ns in named.most_common(limit):
        first, *others = texts
        rows.append(columns.Row((duration(ns), share(ns, whole_ns) or "-"), first))
        rows += [columns.Row(("", ""), text, before="  for ", is_dim=True) for text in others]
    text = columns.table(_PATH_HEADINGS, rows, width=width, color=color)
    return text + (f"... and {len(named) - limit} more\n" if len(named) > limit else "")


def render_wakes(timeline: Timeline, *, limit: int = 12, width: int | None, color: bool) -> str:
    """Who was woken by whom, by functions, longest waits first. Ends with a newline."""
    found = sorted(wakes(timeline).items(), key=lambda each: -each[1][1])
    rows = [
        columns.Row(
            (duration(ns), str(count), duration(ns / count)), woken, below=f"  woken by {waker}"
        )
        for (waker, woken), (count, ns) in found[:limit]
    ]
    text = columns.table(_WAKE_HEADINGS, rows, width=width, color=color)
    return text + (f"... and {len(found) - limit} more\n" if len(found) > limit else "")


def _text(link: Link, timeline: Timeline) -> str:
    """What a goroutine did, and where."""
    goroutine = timeline.goroutines.get(link.goid)
    name = goroutine.name if goroutine else UNNAMED
    names = [call.frame.function for call in timeline.stacks.get(link.stack, ())]
    where = next((each for each in names if not _is_standard(each)), names[-1] if names else "")
    lock = timeline.objects.get(link.on)
    named = f" {lock.name}" if lock and lock.is_named and not lock.file else ""
    return f"{name}: {link.what}{named}" + (f" in {where}" if where else "")


def _is_standard(function: str) -> bool:
    """Whether it is of the standard library: all other packages begin with a host, or are main."""
    package = function.split("(", 1)[0].split("[", 1)[0]
    first, is_path, _ = package.partition("/")
    return "." not in first if is_path else not package.startswith("main.")
