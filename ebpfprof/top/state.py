"""The state of `ebpfprof top`: what the screen shows, and what each key changes in that."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ebpfprof.top.rows import Moment, Reading, Shown, Sort, TopRow, TopStack, shown
from ebpfprof.top.views import View, view_named, view_with_key

Action = Literal["quit", "write"]
Page = Literal["rows", "stacks", "help"]

SORT_KEYS: Final[Mapping[str, Sort]] = {"d": "delay", "c": "count", "m": "mean", "n": "name"}
MOVE_KEYS: Final = ("j", "k", "g", "G")
"""Letters that move, unless a view has one as its key."""
_MOVES: Final = {"up": -1, "k": -1, "down": 1, "j": 1}
_MAX_TYPED: Final = 200


@dataclass(slots=True)
class TopView:
    """The state of the screen: a moment, and how it is looked at.

    `views` are the names of those that are recorded. `page_lines` is how many lines one page has,
    as it was drawn last.
    """

    moment: Moment
    views: Sequence[str]
    view: str
    hide_idle: bool = True
    sort: Sort = "delay"
    reverse: bool = False
    pattern: re.Pattern[str] | None = None
    paused: bool = False
    page: Page = "rows"
    chosen: int | None = None
    """Number of the row that is chosen; None: the first one."""
    top: int = 0
    """The first line shown of the stacks or the help."""
    page_lines: int = 10
    typed: str | None = None
    """The part of a filter that is typed; None if none is being typed."""
    error: str = ""
    message: str = ""
    _drawn_from: tuple[object, ...] = field(default=(), repr=False)
    _shown: Shown | None = field(default=None, repr=False)
    _stacks: tuple[Reading | None, int | None, Sequence[TopStack]] = field(
        default=(None, None, ()), repr=False
    )

    @property
    def reading(self) -> Reading:
        """The rows and stacks of the view."""
        return self.moment.readings.get(self.view) or Reading(self.view, 0)

    @property
    def shown(self) -> Shown:
        """The rows as they are shown: chosen and sorted."""
        reading = self.reading
        state = reading, self.sort, self.reverse, self.pattern, self.hide_idle
        if self._shown is None or any(
            new is not old for new, old in zip(state, self._drawn_from, strict=True)
        ):
            self._drawn_from = state
            self._shown = shown(
                reading,
                sort=self.sort,
                reverse=self.reverse,
                pattern=self.pattern,
                hide_idle=self.hide_idle,
            )
        return self._shown

    @property
    def index(self) -> int:
        """Where the chosen row stands among those that are shown; 0 if it is none of them."""
        if self.chosen is None:
            return 0
        for index, row in enumerate(self.shown.rows):
            if row.number == self.chosen:
                return index
        return 0

    @property
    def row(self) -> TopRow | None:
        """The chosen row; None if there is none to choose from."""
        if self.page == "stacks":  # which may be idle or filtered out by now
            return next((r for r in self.reading.rows if r.number == self.chosen), None)
        rows = self.shown.rows
        return rows[self.index] if rows else None

    @property
    def stacks(self) -> Sequence[TopStack]:
        """The stacks of the chosen row."""
        if self.chosen is None:
            return ()
        reading, number, found = self._stacks
        if reading is not self.reading or number != self.chosen:
            reading, number = self.reading, self.chosen
            found = reading.stacks_of(number)
            self._stacks = reading, number, found
        return found

    def press(self, key: str) -> Action | None:
        """Change what one key changes; returns what the caller has to do.

        A key is a character or a name, as top.terminal reads them.
        """
        self.message = ""
        if key == "ctrl-c":
            return "quit"
        if self.typed is not None:
            self._type(key)
            return None
        if key == "q":
            return "quit"
        if key == "w":
            return "write"
        if key in ("p", " "):
            self.paused = not self.paused
        elif self.page == "rows":
            self._press_in_rows(key)
        elif key in ("escape", "enter", "left", "backspace"):
            self.page, self.top = "rows", 0
        elif key in ("h", "?"):
            self.page, self.top = ("rows" if self.page == "help" else "help"), 0
        elif view := view_with_key(key):
            self.page = "rows"
            self._switch(view)
        else:
            self._scroll(key)
        return None

    def _press_in_rows(self, key: str) -> None:
        if view := view_with_key(key):
            self._switch(view)
        elif key in SORT_KEYS:
            self._sort_by(SORT_KEYS[key])
        elif key == "r":
            self.reverse = not self.reverse
        elif key == "i":
            self.hide_idle = not self.hide_idle
        elif key == "/":
            self.typed, self.error = self.pattern.pattern if self.pattern else "", ""
        elif key == "escape":
            self.chosen = None
        elif key in ("h", "?"):
            self.page, self.top = "help", 0
        elif key == "enter":
            row = self.row
            if row:
                self.chosen, self.page, self.top = row.number, "stacks", 0
        else:
            self._move(key)

    def _switch(self, view: View) -> None:
        if view.name not in self.views:
            self.message = view.missing
        elif view.name != self.view:
            self.view, self.chosen = view.name, None
            self._sort_by(self.sort)

    def _sort_by(self, sort: Sort) -> None:
        if view_named(self.view).rows == "functions" and sort == "mean":
            sort = "delay"
            self.message = "Functions have no mean: sorted by the value of the function itself."
        self.sort = sort

    def _move(self, key: str) -> None:
        rows = self.shown.rows
        index = _moved(key, self.index, len(rows), self.page_lines)
        if rows and index is not None:
            self.chosen = rows[index].number

    def _scroll(self, key: str) -> None:
        """Only drawing knows the last line: it corrects a number beyond that."""
        top = _moved(key, self.top, 1 << 30, self.page_lines)
        if top is not None:
            self.top = top

    def _type(self, key: str) -> None:
        typed = self.typed or ""
        if key in ("enter", "escape"):
            if key == "escape":
                self.pattern = None
            self.typed = None
            if self.error:
                self.message = self.error
            self.error = ""
            return
        if key == "backspace":
            typed = typed[:-1]
        elif key == "ctrl-u":
            typed = ""
        elif len(key) == 1 and key.isprintable() and len(typed) < _MAX_TYPED:
            typed += key
        self.typed = typed
        self.error = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a warning would destroy the screen
                self.pattern = re.compile(typed) if typed else None
        except (re.error, OverflowError, RecursionError) as error:
            self.error = f"This is no regular expression: {error}."


def _moved(key: str, index: int, length: int, page_lines: int) -> int | None:
    """The index that a key moves to from `index`; None if it is no such key."""
    steps: Mapping[str, Callable[[], int]] = {
        "home": lambda: 0,
        "g": lambda: 0,
        "end": lambda: length - 1,
        "G": lambda: length - 1,
        "pageup": lambda: index - page_lines,
        "pagedown": lambda: index + page_lines,
    }
    if key in _MOVES:
        to = index + _MOVES[key]
    elif key in steps:
        to = steps[key]()
    else:
        return None
    return max(min(to, length - 1), 0)
