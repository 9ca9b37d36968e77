"""The columns of how long waits were: the median, the 99th percentile and the longest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.export.tables.quantities import amount
from ebpfprof.profile.wait_histogram import QUANTILES

if TYPE_CHECKING:
    from ebpfprof.profile.wait_histogram import WaitHistogram

DIGITS_OF_LENGTH: Final = 2
"""How many digits of a length are shown: a bucket is up to 12 % wide."""
_NOT_KNOWN: Final = "-"


def length_cell(
    lengths: WaitHistogram, heading: str, *, waits: float, variance: float, color: bool
) -> str:
    """A cell of the column p50, p99 or Max; "-" if that is not known well enough.

    There are so many `waits`; `variance` is that of their number, if it is an estimate.
    """
    quantile = lengths.quantile(QUANTILES[heading.lower()], waits=waits, variance=variance)
    if quantile is None or not quantile.is_known:
        return _NOT_KNOWN
    return amount(quantile.ns, "nanoseconds", color=color, digits=DIGITS_OF_LENGTH)
