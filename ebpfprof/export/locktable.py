"""Locks as a table for people: which, how long others waited, who waited and who held it."""

from collections.abc import Iterator, Sequence
from io import StringIO

from ebpfprof.export.summary import Row, rows_of
from ebpfprof.profile import Lock, Sample
from ebpfprof.text import duration, printable

_MAX_NAME = 512
_PLACES = 3
_UNLIMITED = 4096
_HEADINGS = ("Delay", "Share", "Count", "Mean", "Held", "Lock")


def render(locks: Sequence[Lock], *, limit: int = 10, width: int | None, color: bool) -> str:
    """The first `limit` locks, below each where it was released and who waited for it.

    "Held" is the mean of the times that could be seen. Made for `width` columns, but nothing is cut
    off; None stands for as many as it takes. Without `color` the text is plain ASCII. Nothing
    that the target says reaches the terminal as a control character. Ends with a newline.
    """
    # rich takes some 30 ms to import: only who prints a table pays for it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def safe(text: str) -> str:
        return printable(text[-_MAX_NAME:], ascii_only=not color)

    all_ns = sum(lock.delay_ns for lock in locks)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "Lock" else "right", no_wrap=True)
    for lock in locks[:limit]:
        text = Text(safe(_title(lock)))
        for line in _places(lock):
            text.append("\n  " + safe(line), style="dim")
        table.add_row(
            duration(lock.delay_ns),
            f"{100 * lock.delay_ns / all_ns:.1f}%" if all_ns else "-",
            str(lock.contentions),
            duration(lock.delay_ns / lock.contentions) if lock.contentions else "-",
            duration(lock.held_ns / lock.holds) if lock.holds else "-",
            text,
        )
    console = Console(
        file=StringIO(),
        width=max(width or 0, _UNLIMITED),
        color_system="standard" if color else None,
        force_terminal=color,
    )
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    if len(locks) > limit:
        lines.append(f"... and {len(locks) - limit} more")
    return "".join(line + "\n" for line in lines)


def _title(lock: Lock) -> str:
    """ "main.registry.mu (sync.Mutex at 0xc000012080)"."""
    where = f"{lock.type or 'semaphore'} at {lock.address:#x}"
    return f"{lock.name} ({where})" if lock.name else where


def _places(lock: Lock) -> Iterator[str]:
    for verb, samples in (("released", lock.releases), ("waited for", lock.waits)):
        for row in rows_of(samples, _PLACES):
            yield f"{verb} by {_place(row)}"
        yield from _rest(verb, samples)


def _place(row: Row) -> str:
    where = f", {row.file.rpartition('/')[2]}:{row.line}" if row.file else ""
    return f"{row.function}{where}: {row.operation}, {row.contentions}x, {duration(row.delay_ns)}"


def _rest(verb: str, samples: Sequence[Sample]) -> Iterator[str]:
    more = len(rows_of(samples, len(samples))) - _PLACES
    if more > 0:
        yield f"{verb} in {more} more places"
