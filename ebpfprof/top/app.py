"""`ebpfprof top` on the terminal: tables to choose, sort and search, by textual.

Only the live table imports this module: textual takes about 0.2 s to import.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Size
from textual.widgets import DataTable, Tabs

from ebpfprof.top.drawing import DrawnTable
from ebpfprof.top.pages import HelpPage, StacksPage
from ebpfprof.top.poller import PollingThread
from ebpfprof.top.rows import Sort
from ebpfprof.top.state import TopView
from ebpfprof.top.views import view_named

_TICK_S: Final = 0.1
_OF_THE_TABLE: Final = ("stacks", "search", "sort", "reverse", "idle", "move")
_HANDLED: Final = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


class TopApp(DrawnTable):
    """The live table. `run_live` runs it on the terminal."""

    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        # With priority, so that what is typed right after it is part of the search.
        Binding("slash", "search", "Search", key_display="/", priority=True),
        Binding("d", "sort('delay')", "Sort", key_display="d c m n"),
        Binding("c", "sort('count')", show=False),
        Binding("m", "sort('mean')", show=False),
        Binding("n", "sort('name')", show=False),
        Binding("r", "reverse", show=False),
        Binding("i", "idle", "Idle"),
        Binding("p,space", "pause", "Pause", key_display="p"),
        Binding("w", "write", "Write"),
        Binding("T", "trace", "Trace"),
        Binding("question_mark,h", "help", "Help", key_display="?"),
        Binding("escape", "leave", show=False),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("tab", "next(1)", show=False, priority=True),
        Binding("shift+tab", "next(-1)", show=False, priority=True),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Whether a key does something on this page."""
        if action == "search" and self._is_searching:
            return False
        return action not in _OF_THE_TABLE or len(self.screen_stack) == 1

    def on_mount(self) -> None:
        """Show the first moment, and wait for the next ones."""
        self._table.focus()
        self.set_interval(_TICK_S, self._tick)
        self._say("")

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Switch to the table of a tab."""
        if event.tab.id and event.tab.id != self._top.view:
            self.action_view(view_named(event.tab.id).key)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the stacks of a row."""
        self._choose(event.cursor_row)
        self.action_stacks()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by a column; the other way round if it is sorted by it."""
        sort = self._layout.sorts[event.column_index]
        if sort is None:
            self._say("Rows are not sorted by this column: d, c, m and n sort.")
        elif sort == self._top.sort:
            self.action_reverse()
        else:
            self.action_sort(sort)

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
        """Pause the table, which continues to record, or resume it."""
        self._top.paused = not self._top.paused
        self._say("")

    def action_write(self) -> None:
        """Write pprof files."""
        self._say("Writing...")
        self._thread.write()

    def action_trace(self) -> None:
        """Write an execution trace: of the last seconds, or the next ones."""
        self._thread.trace()

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

    def action_leave(self) -> None:
        """Go back: from a page to the table, from a search to all rows, to the first row."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif self._search.display:
            self._search.value = ""
            self._close_search()
        self._chosen = None if len(self.screen_stack) == 1 else self._chosen
        self._say("")

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


def run_live(view: TopView, thread: PollingThread, has_to_end: Callable[[], bool]) -> None:
    """Run the live table on the terminal until it ends."""
    app = TopApp(view, thread, has_to_end)
    with _handlers_restored():
        app.run()
    if app.return_code:
        raise RuntimeError("The live table failed; its output is above.")


@contextmanager
def _handlers_restored() -> Iterator[None]:
    """Textual leaves its handlers of signals behind."""
    before = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
