"""Columns of text, for all tables.

No text of a target or a file reaches the terminal as a control character.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ebpfprof.console.text import printable

GAP: Final = 2
"""Spaces between two columns."""
_MAX_NAME: Final = 512
_MIN_ROOM: Final = 24  # columns, for a name
_MAX_OPERATION: Final = 40  # columns
_MIN_OPERATION: Final = 10  # columns
# Select Graphic Rendition, ECMA-48.
_STYLES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}


class Line(NamedTuple):
    """A line of a cell, printable; `style` is "" or one of bold, dim, red, green and yellow."""

    text: str
    style: str = ""


Cell = Sequence[Line]
"""The lines of a cell; none for an empty one."""


class TextColumn(NamedTuple):
    """A column, with its heading, of at least that width. Numbers are aligned on the right."""

    heading: str
    is_number: bool = False
    least: int = 0


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

    The last `left` columns are aligned on the left, the others on the right. In a narrow terminal,
    the one before the names gets narrower if it is one of them. Without `color` the text is plain
    ASCII. Ends with a newline.
    """
    first_left = len(headings) - left
    columns = [TextColumn(heading, number < first_left) for number, heading in enumerate(headings)]
    room = None
    if width is not None:
        rows, room = _narrow_enough(headings, rows, left, width)
        room = max(room, _least_room(rows))
    cells = []
    for row in rows:
        style = "dim" if row.is_dim else ""
        line: list[Cell] = [[Line(cell, style)] for cell in row.cells]
        if row.beside:
            first = Row((), row.beside.name, below=row.beside.below, is_dim=row.is_dim)
            line.append(_name_cell(first, room, color=color))
        cells.append([*line, _name_cell(row, room, color=color)])
    return aligned(columns, cells, color=color)


def fits(headings: Sequence[str], rows: Sequence[Row], *, left: int = 1, width: int | None) -> bool:
    """Whether `width` columns have enough room for table() with these arguments."""
    if width is None:
        return True
    rows, room = _narrow_enough(headings, rows, left, width)
    return room >= _least_room(rows)


def _names(rows: Sequence[Row]) -> int:
    """How many columns have names."""
    return 2 if any(row.beside for row in rows) else 1


def _least_room(rows: Sequence[Row]) -> int:
    return _MIN_ROOM // _names(rows)


def _narrow_enough(
    headings: Sequence[str], rows: Sequence[Row], left: int, width: int
) -> tuple[Sequence[Row], int]:
    """The rows, narrowed if need be, and how many columns are left for each of the names."""
    names, least = _names(rows), _least_room(rows)
    room = _room(headings, rows, names, width)
    if room < least and left > names:
        rows = _narrowed(rows, least - room)
        room = _room(headings, rows, names, width)
    return rows, room


def _room(headings: Sequence[str], rows: Sequence[Row], names: int, width: int) -> int:
    """How many columns are left for each of the names."""
    others = zip(headings[:-names], *(row.cells for row in rows), strict=True)
    taken = sum(max(map(cells_of, column)) + GAP for column in others)
    return (width - taken - GAP * (names - 1)) // names


def _narrowed(rows: Sequence[Row], by: int) -> list[Row]:
    """The rows with the last of their cells cut, so that the column is narrower by so much."""
    widest = max(cells_of(row.cells[-1]) for row in rows)
    room = max(widest - by, _MIN_OPERATION)
    return [replace(row, cells=(*row.cells[:-1], fit(row.cells[-1], room))) for row in rows]


def aligned(columns: Sequence[TextColumn], rows: Sequence[Sequence[Cell]], *, color: bool) -> str:
    """The rows below the headings, if there are any; columns are as wide as they need to be.

    Styles are shown with `color` only. Lines have no trailing spaces and end with a newline.
    """
    headings = [[Line(column.heading, "bold")] for column in columns]
    shown = [headings, *rows] if any(column.heading for column in columns) else rows
    widths = [
        max([column.least, *(cells_of(line.text) for row in shown for line in row[number])])
        for number, column in enumerate(columns)
    ]
    lines = []
    for row in shown:
        for number in range(max(map(len, row), default=0)):
            parts = [
                _padded(cell[number] if number < len(cell) else Line(""), width, column, color)
                for cell, width, column in zip(row, widths, columns, strict=True)
            ]
            lines.append((" " * GAP).join(parts).rstrip() + "\n")
    return "".join(lines)


def operation_cell(operation: str, *, color: bool) -> str:
    """An operation as a cell of a row, printable, and cut if it is a long function name."""
    return fit(_printable(operation, color), _MAX_OPERATION)


def cells_of(text: str) -> int:
    """How many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    try:
        from rich.cells import cell_len
    except ImportError:  # doctor says what is missing, and needs to print that
        return len(text)
    return cell_len(text)


def fit(text: str, room: int | None) -> str:
    """Cut `text` to `room` columns on the left, where packages and paths say least."""
    if room is None or cells_of(text) <= room:
        return text
    dots = "..." if room > 3 else ""
    start = max(len(text) - max(room, 0), 0)
    while start < len(text) and cells_of(text[start:]) > room - len(dots):
        start += 1
    return dots + text[start:]


def beginning(text: str, room: int) -> str:
    """Cut `text` to `room` columns on the right."""
    if cells_of(text) <= room:
        return text
    end = min(len(text), room)
    while end > 0 and cells_of(text[:end]) > room - 3:
        end -= 1
    return text[:end] + "..."


def _name_cell(row: Row, room: int | None, *, color: bool) -> Cell:
    name, after, *lines = (
        _printable(text, color) for text in (row.name, row.after, row.below, row.origin)
    )
    if room and cells_of(row.before + name + after) > room:
        after = ""
    name = fit(name, room and room - len(row.before + after))
    first = Line(row.before + name + after, "dim" if row.is_dim else "")
    return [first, *(Line(fit(line, room), "dim") for line in lines if line)]


def _padded(line: Line, width: int, column: TextColumn, color: bool) -> str:
    spaces = " " * (width - cells_of(line.text))
    text = line.text
    if color and line.style and text:
        text = f"\x1b[{_STYLES[line.style]}m{text}\x1b[0m"
    return spaces + text if column.is_number else text + spaces


def _printable(text: str, color: bool) -> str:
    return printable(text[-_MAX_NAME:], ascii_only=not color)
