"""Columns of text, for all tables.

No text of a target or a file reaches the terminal as a control character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple

from ebpfprof.console.text import printable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_MAX_NAME = 512
_MIN_ROOM = 24  # columns, for a name
_UNLIMITED = 1 << 13
_MAX_OPERATION = 40  # columns


class Name(NamedTuple):
    """A name and a line below it, "" without one; both may be text of a target."""

    name: str
    below: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: `cells` of all columns except the last one, which holds a name.

    With a name `beside`, there are two columns of names, which share the room; `cells` has neither.

    A name that is too long is cut on the left. `before` precedes it, `after` follows it if there
    is space for both; `below` and `origin` have lines of their own. `name`, `after`, `below` and
    `origin` may be text of a target; `cells` and `before` must be printable.
    """

    cells: Sequence[str]
    name: str
    before: str = ""
    after: str = ""
    below: str = ""
    origin: str = ""
    is_dim: bool = False
    beside: Name | None = None


def table(
    headings: Sequence[str],
    rows: Sequence[Row],
    *,
    left: int = 1,
    width: int | None,
    color: bool,
) -> str:
    """The rows below their headings, in at most `width` columns; None: no limit.

    The last `left` columns are aligned on the left, the others on the right. Without `color` the
    text is plain ASCII. Ends with a newline.
    """
    # Importing rich takes some 30 ms: only commands that print a table pay for it.
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        is_left = number >= len(headings) - left
        found.add_column(Text(heading), justify="left" if is_left else "right", no_wrap=True)
    names = 2 if any(row.beside for row in rows) else 1
    columns = zip(headings[:-names], *(row.cells for row in rows), strict=True)
    taken = sum(max(map(cell_len, column)) + 2 for column in columns) + 2 * (names - 1)
    room = None if width is None else max((width - taken) // names, _MIN_ROOM // names)
    for row in rows:
        style = "dim" if row.is_dim else ""
        cells = [Text(cell, style) for cell in row.cells]
        if row.beside:
            first = Row((), row.beside.name, below=row.beside.below, is_dim=row.is_dim)
            cells.append(_last_cell(first, room, color=color))
        found.add_row(*cells, _last_cell(row, room, color=color))
    return rendered(found, width=taken + names * (room or _UNLIMITED), color=color)


def _last_cell(row: Row, room: int | None, *, color: bool) -> Text:
    from rich.cells import cell_len
    from rich.text import Text

    name, after, *lines = (
        _printable(each, color) for each in (row.name, row.after, row.below, row.origin)
    )
    if room and cell_len(row.before + name + after) > room:
        after = ""
    name = fit(name, room and room - len(row.before + after), cell_len)
    cell = Text(row.before + name + after, "dim" if row.is_dim else "")
    for line in filter(None, lines):
        cell.append("\n" + fit(line, room, cell_len), style="dim")
    return cell


def operation_cell(operation: str, *, color: bool) -> str:
    """An operation as a cell of a row, printable, and cut if it is a long function name."""
    from rich.cells import cell_len

    return fit(_printable(operation, color), _MAX_OPERATION, cell_len)


def _printable(text: str, color: bool) -> str:
    return printable(text[-_MAX_NAME:], ascii_only=not color)


def rendered(table: Table, *, width: int, color: bool) -> str:
    """The table in `width` columns, without trailing spaces; ends with a newline."""
    from rich.console import Console

    console = Console(
        file=StringIO(),
        width=width,
        color_system="standard" if color else None,
        force_terminal=color,
    )
    with console.capture() as capture:
        console.print(table)
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


def fit(text: str, room: int | None, cell_len: Callable[[str], int]) -> str:
    """Cut `text` to `room` columns on the left, where packages and paths say least."""
    if room is None or cell_len(text) <= room:
        return text
    dots = "..." if room > 3 else ""
    start = max(len(text) - max(room, 0), 0)
    while start < len(text) and cell_len(text[start:]) > room - len(dots):
        start += 1
    return dots + text[start:]
