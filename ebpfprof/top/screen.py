"""What `ebpfprof top` shows, as lines of text for a screen of a given size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from ebpfprof.console.text import duration, printable
from ebpfprof.export.tables.columns import fit
from ebpfprof.profile.model import Frame, Label
from ebpfprof.top.header import count_per_s, header, in_a_second, of_processor
from ebpfprof.top.lines import Part, first_fitting, joined, wrapped
from ebpfprof.top.rows import Reading, Shown, Sort, TopRow, TopStack, View
from ebpfprof.top.state import TopView

_MAX_NAME: Final = 512
_MAX_STACKS: Final = 50
_MAX_OPERATION: Final = 20
_MAX_PLACE: Final = 28
_MIN_NAME: Final = 22
_LEAST_NAME: Final = 8
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
d  sort by delay (CPU: by the time in the function itself)
c  sort by count (CPU: by the time in the function and all it calls)
m  sort by mean delay        n  sort by name
r  reverse the order         /  filter rows by a regular expression; Esc ends the filter
i  show or hide idle waits   p, Space  pause and go on
b  block: where goroutines waited
u  mutex: who made others wait at locks
x  CPU: which functions used the processor
l  locks (with --by-lock)
Up, Down, PgUp, PgDn, Home, End, j, k, g, G  choose a row
Enter  the stacks of the row, with labels and counts; Esc goes back
w  write pprof files of all since the start into the current folder
q, Ctrl-C  end; Ctrl-Z suspends

Delay/s, Count/s, CPU: of the time since the last look, per second.
Delay/s 2.5 s: waits that ended in a second had lasted 2.5 s together.
Total: since the start. Share: of all rows but hidden ones.
Held: for how long a lock was held while others waited, the mean.
Target loses ~1.2%: of its CPU time since the start. Probes that it passed are
counted, our programs timed now and then; what the trap takes was tried out.
Watched: the part of the time that --max-overhead allows; sums are scaled.
Waits are counted when they end: `ebpfprof attach --open` shows those that don't."""
_NOTHING: Final = {
    "block": "No goroutine waited and was woken.",
    "mutex": "No goroutine waited for a lock.",
    "cpu": "No CPU time was used.",
    "locks": "No goroutine waited for a lock.",
}

_NAMES: Final[dict[View, tuple[str, ...]]] = {
    "block": ("Called from", "From"),
    "mutex": ("Released by", "By"),
    "cpu": ("Function",),
    "locks": ("Lock",),
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of numbers. `sort` is the order that it shows; the least `keep` gives way first."""

    heading: str
    width: int
    keep: int
    text: Callable[[TopRow, float], str]
    sort: Sort | None = None


def _share(rate: float, all_rates: float) -> str:
    return f"{100 * rate / all_rates:.1f}%" if all_rates > 0 else "-"


_DELAY = _Column("Delay/s", 8, 9, lambda row, _: in_a_second(row.rate), "delay")
_SHARE = _Column("Share", 6, 4, lambda row, all_rates: _share(row.rate, all_rates))
_COUNT = _Column("Count/s", 8, 6, lambda row, _: count_per_s(row.count_per_s), "count")
_MEAN = _Column("Mean", 8, 5, lambda row, *_: duration(row.mean_ns), "mean")
_TOTAL = _Column("Total", 8, 3, lambda row, *_: duration(row.total_ns))
_HELD = _Column("Held", 8, 2, lambda r, *_: "-" if r.held_ns is None else duration(r.held_ns))
_WAITS: Final = (_DELAY, _SHARE, _COUNT, _MEAN, _TOTAL)
_COLUMNS: Final[dict[View, tuple[_Column, ...]]] = {
    "block": _WAITS,
    "mutex": _WAITS,
    "locks": (*_WAITS, _HELD),
    "cpu": (
        _Column("CPU", 7, 9, lambda row, _: of_processor(row.rate), "delay"),
        _Column("Share", 6, 5, lambda row, all_rates: _share(row.rate, all_rates)),
        _Column("+Callees", 8, 6, lambda row, _: of_processor(row.callees_rate), "count"),
        _Column("Total", 8, 4, lambda row, *_: duration(row.total_ns)),
        _Column("+Callees", 8, 3, lambda row, *_: duration(row.total_callees_ns)),
    ),
}


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
        self._reading: Reading = view.reading
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
        layout = _Layout(view, visible, self._width, self._safe)
        found = [layout.headings()]
        for index, row in enumerate(visible, first):
            found.append(layout.line(row, self._shown.rate, index == chosen))
        if not rows:
            nothing = "No row matches." if view.pattern else _NOTHING[self._reading.view]
            if self._shown.hidden and not view.pattern:
                nothing = "All waits are idle: i shows them."
            if not view.moment.readings:
                nothing = "Looking..."
            found += wrapped(nothing, self._width, "dim")
        return found

    def _stacks(self) -> Iterator[Callable[[], Text]]:
        """What makes the lines: they are thousands, of which a few are seen."""
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
        role = f"{stack.role}: " if stack.role else ""
        text = (
            f"{role}{in_a_second(stack.rate)}/s ({_share(stack.rate, all_rates)})  "
            f"{count_per_s(stack.count_per_s)}/s  "
            f"since the start: {duration(values[-1])}, {values[0]:,} times"
        )
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
        for line in _HELP.splitlines():
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


class _Layout:
    """Which columns there is room for, and how wide they are."""

    def __init__(
        self,
        view: TopView,
        rows: Sequence[TopRow],
        width: int | None,
        safe: Callable[[str], str],
    ) -> None:
        self._view = view
        self._safe = safe
        columns = list(_COLUMNS[view.view])
        operations = [cell_len(safe(row.key.operation)[:_MAX_OPERATION]) for row in rows]
        self._operation = max(operations, default=0)
        if self._operation:
            self._operation = max(self._operation, len("Operation"))
        self._pid = 7 if len(view.moment.targets) > 1 else 0
        names = max((cell_len(safe(row.key.name)) for row in rows), default=0)
        places = max((cell_len(safe(row.key.place)) for row in rows), default=0)
        self._columns = columns
        self._place = min(places, _MAX_PLACE)
        named = max(names, len("Called from"))
        if width is None:
            self._name = named
            return
        # One after the other gives way to the name: the pid of the rows last.
        while self._room(width) < _MIN_NAME and len(columns) > 1:
            if self._place:
                self._place = 0
            elif self._operation and len(columns) < 3:
                self._operation = 0
            else:
                columns.remove(min(columns, key=lambda column: column.keep))
        if self._place and self._room(width) < min(names, _MIN_NAME):
            self._place = 0
        if self._room(width) < _LEAST_NAME:
            self._pid = 0
        self._name = max(min(self._room(width), named), 1)

    def _room(self, width: int) -> int:
        """What the other columns leave the name; the first column of the line is the cursor's."""
        widths = [column.width for column in self._columns]
        widths += [each for each in (self._operation, self._pid, self._place) if each]
        return width - 1 - sum(each + 1 for each in widths)

    def headings(self) -> Text:
        view = self._view
        line = Text(" ")
        for column in self._columns:
            style = "bold reverse" if column.sort == view.sort else "bold"
            line.append(" " * (column.width - len(column.heading)))
            line.append(column.heading, style).append(" ")
        if self._pid:
            line.append("PID".rjust(self._pid), "bold").append(" ")
        if self._operation:
            heading = "Type" if view.view == "locks" else "Operation"
            line.append(heading.ljust(self._operation), "bold").append(" ")
        style = "bold reverse" if view.sort == "name" else "bold"
        line.append(first_fitting(_NAMES[view.view], self._name), style)
        return line

    def line(self, row: TopRow, all_rates: float, is_chosen: bool) -> Text:
        safe = self._safe
        cells = [c.text(row, all_rates).rjust(c.width) for c in self._columns]
        if self._pid:
            cells.append(str(row.key.pid).rjust(self._pid))
        if self._operation:
            operation = fit(safe(row.key.operation), self._operation, cell_len)
            cells.append(_padded(operation, self._operation))
        name = fit(safe(row.key.name), self._name, cell_len)
        text = (">" if is_chosen else " ") + " ".join([*cells, name])
        is_quiet = row.key.idle is not None or not (row.count or row.callees_ns)
        line = Text(text, "reverse" if is_chosen else "dim" if is_quiet else "")
        if self._place:
            line.append(" " * (self._name - cell_len(name) + 1))
            place = fit(safe(row.key.place), self._place, cell_len)
            line.append(place, "" if is_chosen else "dim")
        return line


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _label(label: Label) -> str:
    return f"{label.key}={label.value}{label.unit}"
