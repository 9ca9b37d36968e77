"""The columns of how long waits were: the median, the 99th percentile and the longest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console import columns
from ebpfprof.export.tables.quantities import amount
from ebpfprof.profile.wait_histogram import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ebpfprof.profile.wait_histogram import WaitHistogram

DIGITS_OF_LENGTH: Final = 2
"""How many digits of a length are shown: a bucket is up to 12 % wide."""
LENGTHS: Final = ("p50", "p99", "Max")
"""The headings of these columns."""
NOT_KNOWN: Final = "-"


def length_cell(
    lengths: WaitHistogram, heading: str, *, waits: float, variance: float, color: bool
) -> str:
    """A cell of the column p50, p99 or Max; "-" if that is not known well enough.

    There are so many `waits`; `variance` is that of their number, if it is an estimate.
    """
    quantile = lengths.quantile(QUANTILES[heading.lower()], waits=waits, variance=variance)
    if quantile is None or not quantile.is_known:
        return NOT_KNOWN
    return amount(quantile.ns, "nanoseconds", color=color, digits=DIGITS_OF_LENGTH)


def fitting_table(
    choices: Sequence[Sequence[str]],
    rows_of: Callable[[Sequence[str]], Sequence[columns.Row]],
    names: Sequence[str],
    *,
    width: int | None,
    color: bool,
) -> str:
    """The table (see columns.table()) with the first of the headings that fit, else the last.

    `rows_of` makes the rows with these headings; those in `names` are left-aligned, and last.
    """
    for headings in choices:
        rows = rows_of(headings)
        if columns.fits([*headings, *names], rows, left=len(names), width=width):
            break
    return columns.table([*headings, *names], rows, left=len(names), width=width, color=color)
