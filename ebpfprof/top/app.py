"""`ebpfprof top` on the terminal: tables to choose, sort and search, by textual.

Only the live table imports this module: textual takes some 0.2 s to import.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import ClassVar, Final, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.geometry import Size
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from ebpfprof.console.text import printable
from ebpfprof.top.columns import Layout
from ebpfprof.top.header import header
from ebpfprof.top.history import History
from ebpfprof.top.lines import cut
from ebpfprof.top.pages import HelpPage, StacksPage
from ebpfprof.top.poller import PollingThread
from ebpfprof.top.report import harmless, why_empty
from ebpfprof.top.rows import Moment, Sort, TopRow
from ebpfprof.top.state import TopView
from ebpfprof.top.views import view_named, views

_TICK_S: Final = 0.1
_MOST_ROWS: Final = 500
_LEAST_ROWS: Final = 3
_OTHER_LINES: Final = 3  # tabs, headings, keys
_MAX_TYPED: Final = 200
_MAX_MESSAGE: Final = 1024
_MOVES: Final = {"j": "cursor_down", "k": "cursor_up", "g": "scroll_top", "G": "scroll_bottom"}
_OF_THE_TABLE: Final = ("stacks", "search", "sort", "reverse", "idle", "move")
_HANDLED: Final = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
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


class _Stdout:
    """The terminal as a file; what can't be written because the terminal is gone is dropped.

    Textual's thread would end at an error, and the main thread wait for it forever.
    """

    def write(self, text: str) -> None:
        """Write all of it."""
        data = text.encode("utf-8", "backslashreplace")
        with suppress(OSError):
            while data:
                data = data[os.write(self.fileno(), data) :]

    def flush(self) -> None:
        """Do nothing: it is written."""

    def fileno(self) -> int:
        """That of stdout."""
        return 1


class _Driver(LinuxDriver):
    """Draws on stdout: textual itself draws on stderr, which a user may well write to a file."""

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file = cast("TextIOWrapper", _Stdout())


class _Rows(DataTable[Text]):
    """The table, with its main key among those that are shown."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Stacks")]


class TopApp(App[None]):
    """The live table. `run_live` runs it on the terminal."""

    CSS = _CSS
    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        # With priority, so that what is typed right behind it goes into the search.
        Binding("slash", "search", "Search", key_display="/", priority=True),
        Binding("d", "sort('delay')", "Sort", key_display="d c m n"),
        Binding("c", "sort('count')", show=False),
        Binding("m", "sort('mean')", show=False),
        Binding("n", "sort('name')", show=False),
        Binding("r", "reverse", show=False),
        Binding("i", "idle", "Idle"),
        Binding("p,space", "pause", "Pause", key_display="p"),
        Binding("w", "write", "Write"),
        Binding("question_mark,h", "help", "Help", key_display="?"),
        Binding("escape", "leave", show=False),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("tab", "next(1)", show=False, priority=True),
        Binding("shift+tab", "next(-1)", show=False, priority=True),
    ]

    def __init__(
        self,
        view: TopView,
        thread: PollingThread,
        has_to_end: Callable[[], bool],
    ) -> None:
        """Show what `thread` finds, until the user or `has_to_end` ends it."""
        super().__init__(driver_class=_Driver)
        self.theme = "ansi-dark"
        self._top = view
        self._thread = thread
        self._has_to_end = has_to_end
        self._history = History()
        self._chosen: int | None = None  # the number of a row; None: the first one
        self._is_searching = False
        self._shape: object = None
        self._cells: list[list[Text]] = []
        taken = {each.key for each in views()}
        self._moves = [key for key in _MOVES if key not in taken]
        for each in views():
            self.bind(each.key, f"view('{each.key}')", show=False)
        for key in self._moves:
            self.bind(key, f"move('{_MOVES[key]}')", show=False)

    def compose(self) -> ComposeResult:
        """Tabs, what is to be known, the table, a message, the search, the keys."""
        found = [view_named(name) for name in self._top.views]
        tabs = Tabs(*(Tab(f"{v.key} {v.title}", id=v.name) for v in found), active=self._top.view)
        tabs.can_focus = False
        yield tabs
        yield Static(id="header")
        yield _Rows(cursor_type="row", cell_padding=0)
        yield Static(id="message")
        search = Input(id="search", placeholder="a regular expression", max_length=_MAX_TYPED)
        search.display = False
        yield search
        yield Footer(compact=True, show_command_palette=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Whether a key does something on this page."""
        if action == "search" and self._is_searching:
            return False
        return action not in _OF_THE_TABLE or len(self.screen_stack) == 1

    def on_mount(self) -> None:
        """Show the first moment, and look for the next ones."""
        self._table.focus()
        self.set_interval(_TICK_S, self._tick)
        self._say("")

    def on_resize(self) -> None:
        """Choose the columns anew."""
        self._draw()

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Switch to the table of a tab."""
        if event.tab.id and event.tab.id != self._top.view:
            self.action_view(view_named(event.tab.id).key)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the stacks of a row."""
        self._choose(event.cursor_row)
        self.action_stacks()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Keep the row that the user chose, wherever it goes."""
        self._choose(event.cursor_row)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by a column; the other way round if it is sorted by it."""
        sort = self._layout.sorts[event.column_index]
        if sort is None:
            self._say("Rows are not sorted by this column: d, c, m and n sort.")
        elif sort == self._top.sort:
            self.action_reverse()
        else:
            self.action_sort(sort)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while the user types."""
        self._say(self._top.search(event.value))

    def on_input_submitted(self) -> None:
        """End typing; the table stays as it is."""
        self._close_search()

    def action_stacks(self) -> None:
        """Show the stacks of the chosen row."""
        row = self._row
        if row is None:
            return
        number, name = row.number, self._top.view
        page = StacksPage(self._top, number, lambda: self._history.of(name, number), self._safe)
        self.push_screen(page)

    def action_search(self) -> None:
        """Ask for a regular expression."""
        self._is_searching = self._search.display = True
        self.screen.set_focus(self._search)  # at once: focus() would wait

    def action_sort(self, sort: Sort) -> None:
        """Sort the rows."""
        self._say(self._top.sort_by(sort))

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._top.reverse = not self._top.reverse
        self._say("")

    def action_idle(self) -> None:
        """Show or hide idle waits."""
        self._top.hide_idle = not self._top.hide_idle
        self._say("")

    def action_pause(self) -> None:
        """Stop the table, which goes on recording, or let it go on."""
        self._top.paused = not self._top.paused
        self._say("")

    def action_write(self) -> None:
        """Write pprof files."""
        self._say("Writing...")
        self._thread.write()

    def action_help(self) -> None:
        """Show the help, or the table again."""
        if len(self.screen_stack) == 1:
            self.push_screen(HelpPage(self._moves))
        else:
            self.action_leave()

    def action_view(self, key: str) -> None:
        """Show another table."""
        before = self._top.view
        while len(self.screen_stack) > 1:
            self.pop_screen()
        said = self._top.switch(key)
        if self._top.view != before:
            self._chosen = None
            self.screen_stack[0].query_one(Tabs).active = self._top.view
        self._say(said)

    def action_next(self, step: int) -> None:
        """Show the next table, or the one before."""
        names = self._top.views
        name = names[(names.index(self._top.view) + step) % len(names)]
        self.action_view(view_named(name).key)

    def action_move(self, action: str) -> None:
        """Choose another row."""
        getattr(self._table, f"action_{action}")()

    def action_leave(self) -> None:
        """Go back: from a page to the table, from a search to all rows, to the first row."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif self._search.display:
            self._search.value = ""
            self._close_search()
        self._chosen = None if len(self.screen_stack) == 1 else self._chosen
        self._say("")

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

    def _tick(self) -> None:
        """Take what the thread has found; end when it is time, or the terminal is gone."""
        thread = self._thread
        if thread.error or self._has_to_end() or not (self.is_headless or os.isatty(0)):
            self.exit()
            return
        self._notice_size()
        moment = thread.moment()
        if moment:
            self._history.add(moment)
            if not self._top.paused:
                self.show(moment)
        if thread.message:
            said, thread.message = thread.message, ""
            self._say(said)

    def _notice_size(self) -> None:
        """Notice a new size of the window whose signal came while textual started."""
        if not self.is_headless:
            with suppress(OSError):  # the terminal is gone
                size = Size(*os.get_terminal_size(1))
                if size.area and size != self.size:
                    self.post_message(Resize(size, size))

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


def run_live(view: TopView, thread: PollingThread, has_to_end: Callable[[], bool]) -> None:
    """Run the live table on the terminal until it ends."""
    app = TopApp(view, thread, has_to_end)
    with _handlers_restored():
        app.run()
    if app.return_code:
        raise RuntimeError("The live table failed; what it said stands above.")


@contextmanager
def _handlers_restored() -> Iterator[None]:
    """Textual leaves its handlers of signals behind."""
    before = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
