"""The formats of timelines, by their names in -f/--format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.export.timelines import go_trace, page, perfetto

if TYPE_CHECKING:
    from ebpfprof.timeline.model import Timeline


@dataclass(frozen=True, slots=True)
class TimelineFormat:
    """A format: how names of its files end, what opens one ({} is its name), and its encoder.

    Names that we choose end in `ending`; a file is of the format if its name ends in `suffix`, or
    in one of `other_suffixes`, which people give such files, too.
    """

    name: str
    suffix: str
    ending: str
    opened_by: str
    encode: Callable[[Timeline], bytes]
    other_suffixes: tuple[str, ...] = ()


FORMATS: Final = {
    each.name: each
    for each in (
        TimelineFormat("go", ".trace", "trace", "go tool trace {}", go_trace.encode, (".out",)),
        TimelineFormat(
            "perfetto",
            ".perfetto-trace",
            "perfetto-trace",
            "https://ui.perfetto.dev, which opens {} and keeps it in the browser",
            perfetto.encode,
            (".pftrace", ".perfetto"),
        ),
        TimelineFormat("html", ".html", "trace.html", "a browser, with {}", page.encode),
    )
}


def of_name(path: str) -> str | None:
    """The format whose suffix the file name has; None if it has none."""
    for each in FORMATS.values():
        if path.lower().endswith((each.suffix, *each.other_suffixes)):
            return each.name
    return None
