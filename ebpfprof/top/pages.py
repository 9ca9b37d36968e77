"""The pages of `ebpfprof top` that lie over the table: the stacks of a row, the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Sparkline, Static

from ebpfprof.console.text import duration
from ebpfprof.top.header import caveats
from ebpfprof.top.history import Course
from ebpfprof.top.lines import wrapped
from ebpfprof.top.numbers import amount, of_processor, per
from ebpfprof.top.stacks import stack_lines, title
from ebpfprof.top.state import TopView
from ebpfprof.top.views import view_named, views

_HELP: Final = """\
Tab, Shift-Tab, a click, or a letter choose a table:
{views}

d, c, m, n  sort by delay, count, mean, name, or click on a heading
            (functions: d by their own value, c with that of all they call)
r  reverse the order         /  search: a regular expression; Esc ends it
i  show or hide idle waits   p, Space  pause, continue
Arrows, PgUp, PgDn, Home, End, {moves}, the wheel  choose a row
Enter, or a second click  the stacks of the row and how it went; Esc: back
w  write pprof files of all since the start into the current folder
T  write an execution trace of the next 5 s, or with --last 10s of the last
   10 s, as often as you like: `go tool trace FILE` opens it
q, Ctrl-C  end; Ctrl-Z suspends. Shift with the mouse selects text, as ever.

Delay/s, Count/s, CPU: since the last sample, per second.
Delay/s 2.5 s: waits that ended in a second had lasted 2.5 s together.
Error: the standard error of an estimate; digits end where it begins.
Total: since the start. Share: of all rows but hidden ones.
Held: for how long a lock was held while others waited, the mean; and p99.
Target loses ~1.2%: of its CPU time since the start, estimated: ebpfprof
counts the probes that the target passes, and measures what one costs.
Traces are in it; each has the bound of --max-overhead for itself, but with
--last, where the profiles and the trace have half of it each.
Recorded: the part of the time that --max-overhead allows; sums are scaled.
Waits count when they end: `ebpfprof attach --open` shows those that don't."""

BACK: Final[Sequence[BindingType]] = (
    Binding("escape", "app.leave", "Back"),
    Binding("enter,left,backspace", "app.leave", show=False),
    Binding("j", "scroll(1)", show=False),
    Binding("k", "scroll(-1)", show=False),
    Binding("g", "to_end(False)", show=False),
    Binding("G", "to_end(True)", show=False),
)


class Page(Screen[None]):
    """A text to scroll, with the way back."""

    BINDINGS: ClassVar[list[BindingType]] = [*BACK]

    def compose(self) -> ComposeResult:
        """The text, and the keys."""
        with VerticalScroll():
            yield Static(id="text")
        yield Footer(compact=True, show_command_palette=False)

    def action_scroll(self, lines: int) -> None:
        """Scroll by some lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_to_end(self, is_last: bool) -> None:
        """Scroll to the first or the last line."""
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_to(y=scroll.max_scroll_y if is_last else 0, animate=False)


class HelpPage(Page):
    """All keys, and what the numbers mean."""

    def __init__(self, moves: Sequence[str]) -> None:
        """`moves` are the letters that choose a row."""
        super().__init__()
        self._moves = moves

    def on_mount(self) -> None:
        """Show the text."""
        of_views = "\n".join(f"{view.key}  {view.title}: {view.summary}" for view in views())
        text = _HELP.format(views=of_views, moves=", ".join(self._moves))
        self.query_one("#text", Static).update(Text(text))


class StacksPage(Page):
    """The stacks of a row, and how the row went."""

    def __init__(
        self,
        view: TopView,
        number: int,
        course: Callable[[], Course],
        safe: Callable[[str], str],
    ) -> None:
        """`course` is how the row went until now; `safe` makes text fit for a terminal."""
        super().__init__()
        self._view = view
        self._number = number
        self._course = course
        self._safe = safe

    def compose(self) -> ComposeResult:
        """The row and its history above its stacks."""
        yield Static(id="row")
        yield Sparkline([], id="history")
        yield from super().compose()

    def on_mount(self) -> None:
        """Show the first moment."""
        self.show()

    def on_resize(self) -> None:
        """Break the lines for the new width."""
        self.show()

    def show(self) -> None:
        """Show the row as it is now."""
        view, width = self._view, max(self.app.size.width - 2, 1)
        row = view.row(self._number)
        if row is None:
            self.query_one("#row", Static).update(Text("This row has no values any more."))
            self.query_one("#text", Static).update("")
            return
        course = self._course()
        lines = wrapped(self._safe(title(row)), width, "bold", 2)
        lines += caveats(view, width, self._safe)
        lines += wrapped(self._went(course), width)
        self.query_one("#row", Static).update(Text("\n").join(lines))
        history = self.query_one("#history", Sparkline)
        history.data = list(course.rates)
        history.display = len(course.rates) > 1
        stacks = stack_lines(view.reading, row, width, self._safe)
        self.query_one("#text", Static).update(Text("\n").join(stacks))

    def _went(self, course: Course) -> str:
        """The history in words: from when to when, between which values."""
        kind = view_named(self._view.view).kind
        least, most = (self._amount(f(course.rates, default=0.0)) for f in (min, max))
        if course.length_ns <= 0:
            return "Its history begins with the next sample."
        heading = f"{kind.table.value}{per(kind)}"
        return f"{heading} in the last {duration(course.length_ns)}: {least} to {most}"

    def _amount(self, rate: float) -> str:
        kind = view_named(self._view.view).kind
        return of_processor(rate) if kind.table.rate == "processors" else amount(kind, rate)
