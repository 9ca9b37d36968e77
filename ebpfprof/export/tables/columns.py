"""What tables in the terminal have in common."""

from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it takes some 30 ms to import: only who prints a table pays for it
    from rich.table import Table


def rendered(table: "Table", *, width: int, color: bool) -> str:
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
    """Cut `text` on the left, where a package or a path says least, to `room` columns."""
    if room is None or cell_len(text) <= room:
        return text
    dots = "..." if room > 3 else ""
    start = max(len(text) - max(room, 0), 0)
    while start < len(text) and cell_len(text[start:]) > room - len(dots):
        start += 1
    return dots + text[start:]
