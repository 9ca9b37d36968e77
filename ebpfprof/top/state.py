"""The state of `ebpfprof top`: what it shows, and how."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from ebpfprof.top.rows import Moment, Reading, Shown, Sort, TopRow, shown
from ebpfprof.top.views import view_named, view_with_key


@dataclass(slots=True)
class TopView:
    """A moment, and how it is shown. `views` are the names of those that are recorded."""

    moment: Moment
    views: Sequence[str]
    view: str
    hide_idle: bool = True
    sort: Sort = "delay"
    reverse: bool = False
    pattern: re.Pattern[str] | None = None
    paused: bool = False
    _drawn_from: tuple[object, ...] = field(default=(), repr=False)
    _shown: Shown | None = field(default=None, repr=False)

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
            self._shown = self.shown_of(reading)
        return self._shown

    def shown_of(self, reading: Reading) -> Shown:
        """The rows of any table, chosen and sorted in the same way."""
        return shown(
            reading,
            sort=self.sort,
            reverse=self.reverse,
            pattern=self.pattern,
            hide_idle=self.hide_idle,
        )

    def row(self, number: int) -> TopRow | None:
        """The row of that number, also if it is hidden now; None if there is nothing of it."""
        return next((row for row in self.reading.rows if row.number == number), None)

    def switch(self, key: str) -> str:
        """Show the view that a key stands for; returns why that can't be, or ""."""
        view = view_with_key(key)
        if view is None:
            return ""
        if view.name not in self.views:
            return view.missing
        self.view = view.name
        return self.sort_by(self.sort)

    def sort_by(self, sort: Sort) -> str:
        """Sort, the largest first; returns what is not as was asked for, or ""."""
        self.sort = sort
        if view_named(self.view).rows == "functions" and sort == "mean":
            self.sort = "delay"
            return "Functions have no mean: sorted by the value of the function itself."
        return ""

    def search(self, typed: str) -> str:
        """Show only rows that match, or all for ""; returns why that can't be, or ""."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a warning would destroy the screen
                self.pattern = re.compile(typed) if typed else None
        except (re.error, OverflowError, RecursionError) as error:
            return f"This is no regular expression: {error}."
        return ""
