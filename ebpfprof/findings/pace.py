"""How often goroutines wait at a place, and how long each time, by waits in progress.

Before each dump, samples show which waits had begun some time before. If a part p of the waits in
progress began within the last t, and few are shorter than t, their mean length is t / p, and the
mean number of goroutines that wait divided by that is how many begin a second (Little's law).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.console.text import duration

if TYPE_CHECKING:
    from ebpfprof.findings.moments import Doing, Moments

_MOST_NEW: Final = 0.4
"""Of the waits in progress that began within t: if more did, many are shorter than t, and the mean
would be too long. With lengths that differ much (exponentially) it is too long by a fifth."""
_MOST_ERROR: Final = 0.35  # of the value: what is known less well is not said
_LEAST_NEW: Final = 5  # waits that began within t
_BIAS: Final = 0.1  # of the value, by lengths that differ
_S: Final = 1_000_000_000


class WaitPace(NamedTuple):
    """How many waits a second, how long each takes on average, and the standard error of both, as a
    part of them."""

    per_second: float
    each_ns: float
    error: float

    def __str__(self) -> str:
        """In words: "280 ± 50 times a second, about 17 ms each"."""
        error = _digits(self.error * self.per_second, 1)
        times = f"{_digits(self.per_second, 2)} ± {error} times a second"
        return f"{times}, about {duration(self.each_ns, 2)} each"


def _digits(value: float, digits: int) -> str:
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if rounded >= 1 and rounded.is_integer() else f"{rounded:g}"


def pace_of(moments: Moments, seen: Sequence[Doing], mean: float) -> WaitPace | None:
    """The pace of waits of which some were `seen` in dumps; `mean` goroutines wait at a time.

    None if it is not known: if there are few, or most are shorter than the samples are apart.
    """
    # Those that the last sample saw: a dump reads goroutines that move again.
    parked = [doing for doing in seen if doing.leads and doing.goroutine.wait is not None]
    # The longest time within which few of them began has the smallest error.
    for index in reversed(range(1, len(moments.leads_ns))):
        began = Counter(doing.moment for doing in parked if doing.leads <= index)
        number = began.total()
        if number < _LEAST_NEW or number > _MOST_NEW * len(parked):
            continue
        part = number / len(parked)
        of_each = Counter(doing.moment for doing in parked)
        # Waits of one moment often began together.
        squares = sum((began[at] - part * of_each[at]) ** 2 for at in of_each)
        error = math.hypot(math.sqrt(max(squares, number * (1 - part))) / number, _BIAS)
        if error > _MOST_ERROR:
            continue
        each_ns = (moments.leads_ns[index] - moments.leads_ns[0]) / part
        return WaitPace(mean * _S / each_ns, each_ns, error)
    return None


def often(moments: Moments, seen: Sequence[Doing], mean: float) -> str:
    """The pace in words after "wait on average", "" if it is not known."""
    pace = pace_of(moments, seen, mean)
    return f", {pace}" if pace else ""
