"""A profile of pairs (profile.wakers) as a table: who waited, who woke, how often, how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ebpfprof.console import columns
from ebpfprof.console.text import printable
from ebpfprof.export.tables.lengths import LENGTHS, fitting_table
from ebpfprof.export.tables.operations import CalledOperation, OperationSums, operation_sums
from ebpfprof.export.tables.quantities import amount, error_cell, known_digits
from ebpfprof.profile.evidence import unranked_line
from ebpfprof.profile.kind import Table
from ebpfprof.profile.model import Profile

# The columns of lengths, from the widest to the narrowest table.
_CHOICES: Final = (LENGTHS, ("p99", "Max"), ("p99",), ())


def render(
    profile: Profile,
    *,
    table: Table,
    limit: int = 10,
    is_short: bool = False,
    width: int | None,
    color: bool,
) -> str:
    """The first rows as a table (see columns.table()), with the headings of `table`.

    Each row has one line if it `is_short`, else a second one with what each did, and where.
    Estimates have their standard errors beside them; rows without a rank are counted below. Where
    quantiles of the lengths of waits are known, there are as many as fit.
    """
    rows_found = operation_sums(profile.samples, profile.module)
    ranked = [row for row in rows_found if row.is_ranked][:limit]
    below_table = unranked_line(sum(not row.is_ranked for row in rows_found))
    if not ranked:
        return below_table
    unit = profile.sample_types[-1].unit
    is_estimate = any(row.variance for row in ranked)
    first = (table.value, *(("Error",) if is_estimate else ()), table.count)
    choices = _CHOICES if any(pair.has_lengths for pair in ranked) else ((),)

    def row(pair: OperationSums, lengths: Sequence[str]) -> columns.Row:
        cells = [
            amount(pair.value, unit, color=color, digits=known_digits(pair.error)),
            *([error_cell(pair.error, color=color)] if is_estimate else []),
            pair.count_cell,
            *(pair.length_cell(heading, color=color) for heading in lengths),
        ]
        waiter = CalledOperation(pair.operation, pair.function, pair.file, pair.line)
        waker = pair.waker or CalledOperation("", "", "", 0)
        below = ["" if is_short else _what(place) for place in (waiter, waker)]
        name = columns.Name(waiter.function, below[0])
        return columns.Row(cells, waker.function, below=below[1], beside=name)

    def rows(headings: Sequence[str]) -> list[columns.Row]:
        return [row(pair, headings[len(first) :]) for pair in ranked]

    names = (table.place[0], table.waker[0])
    headings = [(*first, *lengths) for lengths in choices]
    return fitting_table(headings, rows, names, width=width, color=color) + below_table


def _what(place: CalledOperation) -> str:
    """The operation and the line, "" if nothing is known besides the function."""
    where = f"{place.file.rpartition('/')[2]}:{place.line}" if place.file else ""
    operation = "" if place.operation == place.function else place.operation
    return ", ".join(filter(None, (printable(operation), where)))
