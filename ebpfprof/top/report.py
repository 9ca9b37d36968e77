"""A table of `ebpfprof top` as lines, for pipes, files and what stays in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Final

from rich.text import Text

from ebpfprof.console.text import printable
from ebpfprof.top.columns import Layout
from ebpfprof.top.header import header
from ebpfprof.top.lines import wrapped
from ebpfprof.top.state import TopView
from ebpfprof.top.views import view_named

_MAX_NAME: Final = 512


def report(view: TopView, width: int | None, limit: int, *, ascii_only: bool) -> list[Text]:
    """Header and the first `limit` rows, in `width` columns (None: as many as it takes)."""

    def safe(text: str) -> str:
        return harmless(text, ascii_only=ascii_only)

    rows = view.shown.rows[:limit]
    layout = Layout(view, rows, width, safe)
    texts = [*header(view, width, safe), _line(layout.headings())]
    texts += [_line(layout.cells(row, view.shown.rate)) for row in rows]
    if not rows:
        texts += wrapped(why_empty(view), width, "dim")
    return texts


def why_empty(view: TopView) -> str:
    """Why there are no rows to show."""
    if not view.moment.readings:
        return "Recording. The first table comes in a moment."
    if view.pattern:
        return "No row matches."
    return (
        "All waits are idle: i shows them." if view.shown.hidden else view_named(view.view).nothing
    )


def harmless(text: str, *, ascii_only: bool = False) -> str:
    """Text of a target, made fit for a terminal; of a very long one the end."""
    return printable(text[-_MAX_NAME:], ascii_only=ascii_only)


def rendered(lines: Sequence[Text], width: int, *, color: bool) -> str:
    """The lines with escape sequences for their styles; without `color` for bold and the like."""
    from rich.console import Console

    out = StringIO()
    console = Console(
        file=out,
        width=max(width, 1),
        force_terminal=True,
        color_system="standard",
        no_color=not color,
        highlight=False,
    )
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop", crop=True)
    return out.getvalue()


def plain(lines: Sequence[Text]) -> str:
    """The lines as text, without styles and trailing spaces; ends with a newline."""
    return "".join(f"{line.plain.rstrip()}\n" for line in lines)


def _line(cells: Sequence[Text]) -> Text:
    return Text.assemble(" ", Text(" ").join(cells))
