"""Locks as a table for people: which, how long others waited, who held them and who waited."""

from collections.abc import Iterator, Sequence

from ebpfprof.console.text import counted, duration, printable
from ebpfprof.export.tables.columns import fit, rendered
from ebpfprof.export.tables.waits import Row, rows_of
from ebpfprof.profile.model import Lock, Sample

_MAX_NAME = 512
_MIN_ROOM = 24
_UNLIMITED = 1 << 13
_PLACES = 3
_INDENT = "  "
_HEADINGS = ("Delay", "Share", "Count", "Mean", "Held", "Lock")


def render(locks: Sequence[Lock], *, limit: int = 10, width: int | None, color: bool) -> str:
    """The first `limit` locks, below each the places that released it and those that waited.

    "Held" is the mean of the times that could be seen. The table has at most `width` columns; None
    stands for as many as it takes. Without `color` the text is plain ASCII. Nothing that the
    target says reaches the terminal as a control character. Ends with a newline.
    """
    # rich takes some 30 ms to import: only who prints a table pays for it.
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    all_ns = sum(lock.delay_ns for lock in locks)
    rows = [row for lock in locks[:limit] for row in _rows(lock, all_ns)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "Lock" else "right", no_wrap=True)
    columns = list(zip(_HEADINGS, *rows, strict=False))[:-1]
    taken = sum(max(map(cell_len, column)) + 2 for column in columns)
    room = None if width is None else max(width - taken, _MIN_ROOM)
    for *numbers, before, name, after in rows:
        style = "dim" if before else ""
        name, after = (printable(t[-_MAX_NAME:], ascii_only=not color) for t in (name, after))
        if room and cell_len(before + name + after) > room:
            after = ""
        shown = before + fit(name, room and room - len(before + after), cell_len) + after
        table.add_row(*(Text(number, style) for number in numbers), Text(shown, style))
    text = rendered(table, width=taken + (room or _UNLIMITED), color=color)
    if len(locks) > limit:
        text += f"... and {len(locks) - limit} more\n"
    return text


def _rows(lock: Lock, all_ns: int) -> Iterator[tuple[str, ...]]:
    """The texts of each row by column; the last column's in three parts.

    In front of a name, the name, and what is left out where there is no room.
    """
    where = f"{lock.type or 'semaphore'} at {lock.address:#x}"
    yield (
        duration(lock.delay_ns),
        f"{100 * lock.delay_ns / all_ns:.1f}%" if all_ns else "-",
        str(lock.contentions),
        duration(lock.delay_ns / lock.contentions) if lock.contentions else "-",
        duration(lock.held_ns / lock.holds) if lock.holds else "-",
        "",
        *((lock.name, f" ({where})") if lock.name else (where, "")),
    )
    yield from _places("released", lock.releases)
    yield from _places("waited for", lock.waits)
    yield from _places("still waited for", lock.still_waiting)


def _places(verb: str, samples: Sequence[Sample]) -> Iterator[tuple[str, ...]]:
    rows = rows_of(samples, len(samples))
    for row in rows[:_PLACES]:
        line = f", {row.file.rpartition('/')[2]}:{row.line}" if row.file else ""
        yield (*_numbers(row), f"{_INDENT}{verb} by ", row.function + line, f": {row.operation}")
    if len(rows) > _PLACES:
        rest = rows[_PLACES:]
        count = sum(row.contentions for row in rest)
        delay_ns = sum(row.delay_ns for row in rest)
        total = Row("", "", "", 0, contentions=count, delay_ns=delay_ns, share=0.0)
        yield (*_numbers(total), f"{_INDENT}{verb} in ", counted(len(rest), "more place"), "")


def _numbers(row: Row) -> tuple[str, ...]:
    return duration(row.delay_ns), "", str(row.contentions), duration(row.mean_ns), ""
