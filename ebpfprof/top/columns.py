"""The columns of a table of `ebpfprof top`, and which of them a window has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rich.text import Text

from ebpfprof.console.columns import cells_of, fit
from ebpfprof.console.text import duration
from ebpfprof.export.tables.lengths import DIGITS_OF_LENGTH
from ebpfprof.export.tables.quantities import known_digits
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.wait_histogram import Quantile
from ebpfprof.top.lines import first_fitting
from ebpfprof.top.numbers import (
    NONE,
    amount,
    error,
    events_of,
    of_processor,
    per,
    share,
    total,
)
from ebpfprof.top.rows import Sort, TopRow
from ebpfprof.top.state import TopView
from ebpfprof.top.views import View, view_named

_MAX_OPERATION: Final = 20
_MAX_PLACE: Final = 28
_MIN_NAME: Final = 22
_LEAST_NAME: Final = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers, made of a row and the rate of all rows.

    `sort` is the order that it shows. In a narrow window the least `keep` is left out first.
    """

    heading: str
    width: int
    keep: int
    text: Callable[[TopRow, float], str]
    sort: Sort | None = None


def columns_of(
    view: View,
    *,
    is_estimate: bool = False,
    has_lengths: bool = False,
    has_hold_lengths: bool = False,
) -> list[Column]:
    """The columns of a view in their order, by what its kind has.

    Estimates have their standard errors beside them, and no more digits than are known. With
    lengths of waits, or of holds of locks, there are quantiles of those since the start. A moment
    has no sums since the start; a kind with one value for each sample has no count beside it, and
    no mean.
    """
    kind = view.kind
    is_sum = not kind.is_moment
    if view.rows == "functions":
        rate = of_processor if kind.table.rate == "processors" else partial(amount, kind)
        per_s = "" if kind.table.rate == "processors" else per(kind)
        columns = [
            _column(
                kind.table.value + per_s,
                _wide(kind),
                9,
                lambda row, _: rate(row.rate),
                "delay",
            ),
            _column("Share", 6, 5, _share),
            _column("+Callees", 8, 6, lambda row, _: rate(row.callees_rate), "count"),
        ]
        sums = [
            _column("Total", 8, 4, lambda row, _: total(kind, row.total_value)),
            _column("+Callees", 8, 3, lambda row, _: total(kind, row.total_callees)),
        ]
        return [*columns, *sums] if is_sum else columns
    columns = [
        _column(
            kind.table.value + per(kind),
            *(8, 9),
            lambda row, _: amount(kind, row.rate, known_digits(row.error)),
            "delay",
        ),
        *([_ERROR] if is_estimate else []),
        _column("Share", 6, 4, _share),
    ]
    if kind.has_amount and kind.table.count:
        heading = kind.table.count + per(kind)
        columns += [
            _column(heading, 8, 6, _known(lambda row: _events(kind, row)), "count"),
            _column("Mean", 8, 5, _known(lambda row: _mean(kind, row)), "mean"),
        ]
    if is_sum:
        columns.append(_column("Total", 8, 3, lambda row, _: total(kind, *_all_known(row))))
    if has_lengths:
        columns += _LENGTHS
    if view.rows == "locks":
        columns += [_HELD, _HELD_P99] if has_hold_lengths else [_HELD]
    return columns


def _wide(kind: ProfileKind) -> int:
    """How wide amounts are: percents, or sizes such as 63.3 KiB."""
    return 7 if kind.table.rate == "processors" else 8


def _column(
    heading: str,
    width: int,
    keep: int,
    text: Callable[[TopRow, float], str],
    sort: Sort | None = None,
) -> Column:
    """One that is wide enough for its heading."""
    return Column(heading, max(width, cells_of(heading)), keep, text, sort)


def _share(row: TopRow, all_rates: float) -> str:
    """The share of a row, "-" for one without a rank."""
    return share(row.rate, all_rates) if row.is_ranked else "-"


def _known(text: Callable[[TopRow], str]) -> Callable[[TopRow, float], str]:
    """The text of a row, "-" for one of releases that were not recorded."""
    return lambda row, _: "-" if row.is_unknown else text(row)


_HELD: Final = _column(
    "Held", 8, 2, _known(lambda row: "-" if row.held_ns is None else duration(row.held_ns))
)


def _length(quantile: Quantile | None) -> str:
    return duration(quantile.ns, DIGITS_OF_LENGTH) if quantile else NONE


_P99: Final = _column("p99", 6, 4, lambda row, _: _length(row.quantile("p99")))
_LENGTHS: Final = [
    _column("p50", 6, 1, lambda row, _: _length(row.quantile("p50"))),
    _P99,
    _column("Max", 6, 2, lambda row, _: _length(row.quantile("max"))),
]
_HELD_P99: Final = _column("Held p99", 8, 1, lambda row, _: _length(row.hold_quantile("p99")))
_ERROR: Final = _column("Error", 7, 7, lambda row, _: error(row.error))


def _events(kind: ProfileKind, row: TopRow) -> str:
    return events_of(kind, row.count_per_s, row.value, row.count_error)


def _mean(kind: ProfileKind, row: TopRow) -> str:
    has_ended = row.count or (row.total_count and not row.value)
    return total(kind, row.mean, _digits(row)) if has_ended or not row.total_value else NONE


def _digits(row: TopRow) -> int:
    """How many digits of the mean are known: of the time since the last sample, or of all."""
    return known_digits(max(row.error, row.count_error) if row.count else row.total_error)


def _all_known(row: TopRow) -> tuple[int, int]:
    """The value since the start, and how many digits of it are known."""
    return row.total_value, known_digits(row.total_error)


class Layout:
    """Which columns there is room for, and how wide they are."""

    def __init__(
        self,
        view: TopView,
        rows: Sequence[TopRow],
        width: int | None,
        safe: Callable[[str], str],
    ) -> None:
        """For these rows in `width` columns of a terminal, or as many as it takes for None."""
        self._state = view
        self._view = view_named(view.view)
        self._safe = safe
        has_lengths = any(row.lengths for row in rows)
        columns = columns_of(
            self._view,
            is_estimate=any(row.error > 0 for row in rows),
            has_lengths=has_lengths,
            has_hold_lengths=any(row.hold_lengths for row in rows),
        )
        operations = [cells_of(safe(row.key.operation)[:_MAX_OPERATION]) for row in rows]
        self._operation = max(operations, default=0)
        if self._operation:
            self._operation = max(self._operation, len("Operation"))
        self._pid = 7 if len(view.moment.targets) > 1 else 0
        names = max((cells_of(safe(row.key.name)) for row in rows), default=0)
        places = max((cells_of(safe(row.key.place)) for row in rows), default=0)
        self._columns = columns
        self._place = min(places, _MAX_PLACE)
        named = max(names, cells_of(self._view.place[0]))
        if width is None:
            self._name = named
            return
        # p99 costs no name or place: less telling columns do.
        while has_lengths and self._room(width) < min(names, _MAX_PLACE):
            least = min(columns, key=lambda column: column.keep)
            if least.keep >= _P99.keep:
                break
            columns.remove(least)
        # One after the other gives way to the name: the pid of the rows last.
        while self._room(width) < _MIN_NAME and len(columns) > 1:
            least = min(columns, key=lambda column: column.keep)
            if self._place:
                self._place = 0
            elif self._operation and len(columns) < 3:
                self._operation = 0
            else:
                columns.remove(least)
        if self._place and self._room(width) < min(names, _MIN_NAME):
            self._place = 0
        if self._room(width) < _LEAST_NAME:
            self._pid = 0
        self._name = max(min(self._room(width), named), 1)

    def _room(self, width: int) -> int:
        """What the other columns leave the name; the first column of the line is the cursor's."""
        widths = [column.width for column in self._columns]
        widths += [column for column in (self._operation, self._pid, self._place) if column]
        return width - 1 - sum(width + 1 for width in widths)

    @property
    def widths(self) -> list[int]:
        """How wide each column is."""
        texts = [column for column in (self._pid, self._operation) if column]
        place = [self._place] if self._place else []
        return [*(column.width for column in self._columns), *texts, self._name, *place]

    @property
    def sorts(self) -> list[Sort | None]:
        """The order that each column shows; None if rows can't be sorted by it."""
        texts = [column for column in (self._pid, self._operation) if column]
        place = [None] if self._place else []
        return [*(column.sort for column in self._columns), *(None for _ in texts), "name", *place]

    def headings(self) -> list[Text]:
        """The headings, as wide as their columns, that of the order in reverse."""
        texts = [column.heading.rjust(column.width) for column in self._columns]
        if self._pid:
            texts.append("PID".rjust(self._pid))
        if self._operation:
            heading = "Type" if self._view.rows == "locks" else "Operation"
            texts.append(heading.ljust(self._operation))
        texts.append(_padded(first_fitting(self._view.place, self._name), self._name))
        if self._place:
            texts.append(" " * self._place)
        headings = []
        for text, sort in zip(texts, self.sorts, strict=True):
            styled = Text(text, "bold")
            if sort == self._state.sort:
                word = text.strip()
                start = text.index(word)
                styled.stylize("reverse", start, start + len(word))
            headings.append(styled)
        return headings

    def cells(self, row: TopRow, all_rates: float) -> list[Text]:
        """The cells of a row, as wide as their columns; `all_rates` is the rate of all rows."""
        safe = self._safe
        texts = [
            (error(row.error, safe) if c is _ERROR else c.text(row, all_rates)).rjust(c.width)
            for c in self._columns
        ]
        if self._pid:
            texts.append(str(row.key.pid).rjust(self._pid))
        if self._operation:
            operation = fit(safe(row.key.operation), self._operation)
            texts.append(_padded(operation, self._operation))
        texts.append(_padded(fit(safe(row.key.name), self._name), self._name))
        is_quiet = row.key.idle is not None or not (row.count or row.callees)
        cells = [Text(text, "dim" if is_quiet else "") for text in texts]
        if self._place:
            cells.append(Text(fit(safe(row.key.place), self._place), "dim"))
        return cells


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cells_of(text))
