"""How the live table of `ebpfprof top` is drawn: its header, its rows, its messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from ebpfprof.console.text import printable
from ebpfprof.top.columns import Layout
from ebpfprof.top.driver import StdoutDriver
from ebpfprof.top.header import header
from ebpfprof.top.history import Courses
from ebpfprof.top.lines import cut
from ebpfprof.top.pages import StacksPage
from ebpfprof.top.poller import PollingThread
from ebpfprof.top.report import harmless, why_empty
from ebpfprof.top.rows import Moment, TopRow
from ebpfprof.top.state import TopView
from ebpfprof.top.views import view_named, views

_MOST_ROWS: Final = 500
_LEAST_ROWS: Final = 3
_OTHER_LINES: Final = 3  # tabs, headings, keys
_MAX_TYPED: Final = 200
_MAX_MESSAGE: Final = 1024
_MOVES: Final = {"j": "cursor_down", "k": "cursor_up", "g": "scroll_top", "G": "scroll_bottom"}
# All colours are the terminal's own, so that it may be light or dark; the reverse needs none.
_CSS: Final = """
Screen { background: ansi_default; color: ansi_default; }
Tabs { height: 1; }
Tabs Underline { display: none; }
Tab { padding: 0 1; color: ansi_default; opacity: 100%; }
Tab.-active { text-style: bold reverse; }
#header, #message, #row { height: auto; padding: 0 0; }
#message { text-style: bold; max-height: 3; }
DataTable { height: 1fr; background: ansi_default; scrollbar-size: 1 1; }
DataTable > .datatable--header { background: ansi_default; color: ansi_default; }
DataTable > .datatable--cursor, DataTable > .datatable--header-cursor,
DataTable:focus > .datatable--cursor, DataTable > .datatable--fixed-cursor {
    background: ansi_default; color: ansi_default; text-style: reverse;
}
DataTable > .datatable--hover, DataTable > .datatable--header-hover {
    background: ansi_default; text-style: underline;
}
#search { height: 1; border: none; padding: 0 0; }
#history { height: 2; margin: 0 1 1 0; }
Sparkline > .sparkline--max-color, Sparkline > .sparkline--min-color { color: ansi_cyan; }
VerticalScroll { height: 1fr; scrollbar-size: 1 1; }
Footer { background: ansi_default; }
"""


class _Rows(DataTable[Text]):
    """The table, with its main key among those that are shown."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Stacks")]


class DrawnTable(App[None]):
    """The table of a moment; `TopApp` adds the keys and new moments."""

    CSS = _CSS

    def __init__(
        self,
        view: TopView,
        thread: PollingThread,
        has_to_end: Callable[[], bool],
    ) -> None:
        """Show what `thread` finds, until the user or `has_to_end` ends it."""
        super().__init__(driver_class=StdoutDriver)
        self.theme = "ansi-dark"
        self._top = view
        self._thread = thread
        self._has_to_end = has_to_end
        self._history = Courses()
        self._chosen: int | None = None  # the number of a row; None: the first one
        self._is_searching = False
        self._shape: object = None
        self._cells: list[list[Text]] = []
        taken = {view.key for view in views()}
        self._moves = [key for key in _MOVES if key not in taken]
        for shown in views():
            self.bind(shown.key, f"view('{shown.key}')", show=False)
        for key in self._moves:
            self.bind(key, f"move('{_MOVES[key]}')", show=False)

    def compose(self) -> ComposeResult:
        """Tabs, what is to be known, the table, a message, the search, the keys."""
        views = [view_named(name) for name in self._top.views]
        tabs = Tabs(*(Tab(f"{v.key} {v.title}", id=v.name) for v in views), active=self._top.view)
        tabs.can_focus = False
        yield tabs
        yield Static(id="header")
        yield _Rows(cursor_type="row", cell_padding=0)
        yield Static(id="message")
        search = Input(id="search", placeholder="a regular expression", max_length=_MAX_TYPED)
        search.display = False
        yield search
        yield Footer(compact=True, show_command_palette=False)

    def on_resize(self) -> None:
        """Choose the columns for the new width."""
        self._draw()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Keep the row that the user chose, wherever it goes."""
        self._choose(event.cursor_row)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while the user types."""
        self._say(self._top.search(event.value))

    def action_move(self, action: str) -> None:
        """Choose another row."""
        getattr(self._table, f"action_{action}")()

    def _close_search(self) -> None:
        self._is_searching = self._search.display = False
        self._table.focus()

    @property
    def _table(self) -> _Rows:
        return self.screen_stack[0].query_one(_Rows)

    @property
    def _search(self) -> Input:
        return self.screen_stack[0].query_one("#search", Input)

    @property
    def _row(self) -> TopRow | None:
        rows = self._top.shown.rows
        if not rows:
            return None
        return next((row for row in rows if row.number == self._chosen), rows[0])

    def _choose(self, index: int) -> None:
        rows = self._top.shown.rows
        # An empty table has a cursor at -1. The first row is not chosen unless another one was.
        if 0 <= index < len(rows) and (index or self._chosen is not None):
            self._chosen = rows[index].number

    def _safe(self, text: str) -> str:
        return harmless(text)

    def show(self, moment: Moment) -> None:
        """Show a moment."""
        self._top.moment = moment
        self._draw()
        if isinstance(self.screen, StacksPage):
            self.screen.show()

    def _say(self, text: str) -> None:
        """Show a message, or none for "", and what has changed."""
        message = self.screen_stack[0].query_one("#message", Static)
        message.update(Text(printable(text[:_MAX_MESSAGE])))
        message.display = bool(text)
        self._draw()

    def _draw(self) -> None:
        """Draw the header and the rows of the table as they are now."""
        view, size = self._top, self.size
        width = max(size.width - 1, 1)
        rows = view.shown.rows[:_MOST_ROWS]
        lines = header(view, width, self._safe)
        left = len(view.shown.rows) - len(rows)
        if left:
            lines.append(Text(cut(f"{left:,} more rows; / searches in all", width), "yellow"))
        if not rows:
            lines.append(Text(cut(why_empty(view), width), "dim"))
        # In a small window some rows matter more than the last lines.
        del lines[max(size.height - _OTHER_LINES - _LEAST_ROWS, 1) :]
        self.screen_stack[0].query_one("#header", Static).update(Text("\n").join(lines))
        self._layout = Layout(view, rows, width, self._safe)
        table = self._table
        with self.prevent(DataTable.RowHighlighted):
            self._fill(table, [self._layout.cells(row, view.shown.rate) for row in rows])
            chosen = self._row
            if chosen in rows:
                table.move_cursor(row=rows.index(chosen), animate=False)

    def _fill(self, table: DataTable[Text], cells: list[list[Text]]) -> None:
        """Change what has changed: the table stays where the user has scrolled it to."""
        layout = self._layout
        headings = layout.headings()
        shape = [(str(heading), heading.spans) for heading in headings]
        if shape != self._shape:
            self._shape, self._cells = shape, []
            table.clear(columns=True)
            for heading, width in zip(headings, layout.widths, strict=True):
                table.add_column(Text.assemble(" ", heading), width=width + 1)
        spaced = [[Text.assemble(" ", cell) for cell in row] for row in cells]
        for index, row in enumerate(spaced):
            if index >= len(self._cells):
                table.add_row(*row, key=str(index))
                continue
            for column, (cell, before) in enumerate(zip(row, self._cells[index], strict=True)):
                if cell != before:
                    table.update_cell_at(Coordinate(index, column), cell)
        for index in range(len(self._cells) - 1, len(spaced) - 1, -1):
            table.remove_row(str(index))
        self._cells = spaced
