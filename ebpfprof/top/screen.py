"""The screen of `ebpfprof top` as lines of text, for a terminal of a given size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from ebpfprof.console.text import printable
from ebpfprof.export.tables.columns import fit
from ebpfprof.export.tables.quantities import known_digits
from ebpfprof.profile.model import Frame, Label
from ebpfprof.top.columns import Layout
from ebpfprof.top.header import header
from ebpfprof.top.lines import Part, joined, wrapped
from ebpfprof.top.numbers import amount, error, events, per, share, total
from ebpfprof.top.rows import Shown, TopStack
from ebpfprof.top.state import MOVE_KEYS, TopView
from ebpfprof.top.views import view_named, view_with_key, views

_MAX_NAME: Final = 512
_MAX_STACKS: Final = 50
_MIN_PLACE: Final = 12
_MIN_ROWS: Final = 3
_MAX_MESSAGE: Final = 1024
_MAX_MESSAGE_LINES: Final = 3
# What a key does, and the order in which a narrow window leaves it out: the largest first.
_KEYS: Final = (
    *(("q quit", 0), ("Enter stacks", 2), ("/ filter", 3), ("d c m n sort", 6), ("p pause", 5)),
    *(("w write", 4), ("h help", 1)),
)
_KEYS_IN_STACKS: Final = (
    *(("Esc back", 1), ("j k scroll", 2), ("p pause", 4), ("w write", 3), ("q quit", 0)),
)
_HELP: Final = """\
d  sort by delay (functions: by the value of the function itself)
c  sort by count (functions: by the value with that of all it calls)
m  sort by mean delay        n  sort by name
r  reverse the order         /  filter by a regular expression; Esc ends it
i  show or hide idle waits   p, Space  pause and go on
{views}
Up, Down, PgUp, PgDn, Home, End, {moves}  choose a row
Enter  the stacks of the row, with labels and counts; Esc goes back
w  write pprof files of all since the start into the current folder
q, Ctrl-C  end; Ctrl-Z suspends

Delay/s, Count/s, CPU: of the time since the last look, per second.
Delay/s 2.5 s: waits that ended in a second had lasted 2.5 s together.
Error: the standard error of an estimate; digits end where it begins.
Total: since the start. Share: of all rows but hidden ones.
Held: for how long a lock was held while others waited, the mean.
Target loses ~1.2%: of its CPU time since the start, estimated: ebpfprof
counts the probes that the target passes, and measures what one costs.
Recorded: the part of the time that --max-overhead allows; sums are scaled.
Waits count when they end: `ebpfprof attach --open` shows those that don't."""


def lines(view: TopView, width: int, height: int, *, ascii_only: bool = False) -> list[Text]:
    """The whole screen: at most `height` lines of at most `width` columns.

    Remembers in `view` how long a page is, and where scrolling ended.
    """
    return _Screen(view, max(width, 1), max(height, 1), ascii_only).lines()


def report(view: TopView, width: int | None, limit: int, *, ascii_only: bool) -> list[Text]:
    """Header and the first `limit` rows, in `width` columns (None: as many as it takes)."""
    screen = _Screen(view, width, None, ascii_only)
    return [*screen.header(), *screen.table(limit, cursor=False)]


class _Screen:
    def __init__(
        self, view: TopView, width: int | None, height: int | None, ascii_only: bool
    ) -> None:
        self._view = view
        self._width = width
        self._height = height
        self._ascii_only = ascii_only
        self._view_of = view_named(view.view)
        self._kind = self._view_of.kind
        self._shown: Shown = view.shown

    def header(self) -> list[Text]:
        return header(self._view, self._width, self._safe)

    def lines(self) -> list[Text]:
        assert self._height is not None
        footer = self._footer()
        header = self.header()
        # One line of headings, and some rows: in a small window these matter more than the rest.
        del header[max(self._height - len(footer) - 1 - _MIN_ROWS, 0) :]
        room = self._height - len(header) - len(footer)
        if self._view.page == "rows":
            self._view.page_lines = max(room - 1, 1)
            body = self.table(room - 1, cursor=True)
        else:
            content = list(self._help() if self._view.page == "help" else self._stacks())
            self._view.page_lines = max(room, 1)
            top = self._view.top = max(min(self._view.top, len(content) - room), 0)
            body = [line() for line in content[top : top + max(room, 0)]]
        body = body[: max(room, 0)]
        body += [Text()] * (room - len(body))
        return [self._cut(line) for line in (*header, *body, *footer)][: self._height]

    def table(self, room: int, *, cursor: bool) -> list[Text]:
        """The headings, and as many rows as there is room for, the chosen one among them."""
        view, rows = self._view, self._shown.rows
        chosen = view.index if cursor and rows else -1
        first = max(chosen - room + 1, 0)
        visible = rows[first : first + max(room, 0)]
        layout = Layout(view, visible, self._width, self._safe)
        found = [layout.headings()]
        for index, row in enumerate(visible, first):
            found.append(layout.line(row, self._shown.rate, index == chosen))
        if not rows:
            nothing = "No row matches." if view.pattern else self._view_of.nothing
            if self._shown.hidden and not view.pattern:
                nothing = "All waits are idle: i shows them."
            if not view.moment.readings:
                nothing = "Looking..."
            found += wrapped(nothing, self._width, "dim")
        return found

    def _stacks(self) -> Iterator[Callable[[], Text]]:
        """Functions that make the lines: there are thousands, of which the screen shows a few."""
        view = self._view
        row, stacks = view.row, view.stacks
        if row is None:
            yield from self._wrapped("There is nothing of this row any more.", "dim")
            return
        title = " ".join(part for part in (row.key.operation, row.key.name, row.key.place) if part)
        yield from self._wrapped(self._safe(title), "bold")
        if row.key.idle:
            idle = f"idle, {row.key.idle.name}: {row.key.idle.reason}"
            yield from self._wrapped(self._safe(idle), "dim")
        all_rates = defaultdict[str, float](float)
        for stack in stacks:
            all_rates[stack.role] += stack.rate
        for stack in islice(stacks, _MAX_STACKS):
            yield Text
            yield from self._stack_heading(stack, all_rates[stack.role])
            yield from self._frames(stack)
        if len(stacks) > _MAX_STACKS:
            yield from self._wrapped(f"... and {len(stacks) - _MAX_STACKS} more stacks", "dim")

    def _stack_heading(self, stack: TopStack, all_rates: float) -> Iterator[Callable[[], Text]]:
        values = stack.sample.values
        kind = self._kind
        role = f"{stack.role}: " if stack.role else ""
        digits, all_digits = known_digits(stack.error), known_digits(stack.total_error)
        text = f"{role}{amount(kind, stack.rate, digits)}{per(kind)}"
        text += f" {error(stack.error, self._safe)}" if stack.error > 0 else ""
        text += f" ({share(stack.rate, all_rates)})"
        if len(values) > 1:
            text += f"  {events(kind, stack.count_per_s)}{per(kind)}"
        if not kind.is_moment:
            text += f"  since the start: {total(kind, values[-1], all_digits)}, {values[0]:,} times"
        yield from self._wrapped(text, "cyan")
        if stack.sample.labels:
            labels = "  ".join(_label(label) for label in stack.sample.labels)
            yield from self._wrapped(self._safe(labels), "magenta")

    def _wrapped(self, text: str, style: str = "") -> Iterator[Callable[[], Text]]:
        return (partial(line.copy) for line in wrapped(text, self._width, style))

    def _frames(self, stack: TopStack) -> Iterator[Callable[[], Text]]:
        for location in stack.sample.locations:
            if not location.frames:
                yield partial(Text, f"    {location.address:#x}")
            for index, frame in enumerate(location.frames):
                is_inlined = index + 1 < len(location.frames)
                yield partial(self._frame, frame, " (inlined)" if is_inlined else "")

    def _frame(self, frame: Frame, inlined: str) -> Text:
        room = None if self._width is None else max(self._width - 4, 1)
        name = fit(self._safe(frame.function) + inlined, room, cell_len)
        line = Text(f"    {name}")
        left = None if room is None else room - cell_len(name) - 2
        if frame.file and (left is None or left >= _MIN_PLACE):
            place = fit(self._safe(f"{frame.file}:{frame.line}"), left, cell_len)
            line.append(f"  {place}", "dim")
        return line

    def _help(self) -> Iterator[Callable[[], Text]]:
        keys = [f"{view.key}  {view.title}: {view.summary}" for view in views()]
        moves = [key for key in MOVE_KEYS if not view_with_key(key)]
        for line in _HELP.format(views="\n".join(keys), moves=", ".join(moves)).splitlines():
            yield from self._wrapped(line)

    def _footer(self) -> list[Text]:
        view = self._view
        if view.typed is not None:
            room = None if self._width is None else max(self._width - 2, 1)
            typed = fit(self._safe(view.typed), room, cell_len)
            error = [Part(self._safe(view.error), 1, "red")] if view.error else []
            return [joined([Part(f"/{typed}_", 0, "bold"), *error], self._width)]
        if view.message:
            message = printable(view.message[:_MAX_MESSAGE], ascii_only=self._ascii_only)
            return wrapped(message, self._width, "bold", _MAX_MESSAGE_LINES)
        keys = _KEYS if view.page == "rows" else _KEYS_IN_STACKS
        return [joined([Part(*key, "dim") for key in keys], self._width)]

    def _safe(self, text: str) -> str:
        return printable(text[-_MAX_NAME:], ascii_only=self._ascii_only)

    def _cut(self, line: Text) -> Text:
        if self._width is not None and cell_len(line.plain) > self._width:
            line = line.copy()
            line.truncate(self._width, overflow="crop")
        return line


def _label(label: Label) -> str:
    return f"{label.key}={label.value}{label.unit}"
