"""A profile as a table of functions: its own value (flat), and that with all it called (cum)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ebpfprof.console import columns
from ebpfprof.console.text import counted
from ebpfprof.export.go_quotes import readable
from ebpfprof.export.kinds import default_index
from ebpfprof.export.tables.quantities import (
    amount,
    error_cell,
    heading,
    known_digits,
    share,
)
from ebpfprof.profile.evidence import is_ranked, unranked_line
from ebpfprof.profile.model import UNKNOWN, Profile, Sample

_HEADINGS = ("Share", "Cum", "Share", "Function")


@dataclass(frozen=True, slots=True)
class FunctionSums:
    """A function: `own` is its own value (flat), `total` that with all it called (cum).

    Text comes from the target unchanged: pass it through text.printable() before a terminal.
    """

    function: str
    file: str
    own: int
    total: int
    variance: float = 0.0
    """That of `own`, where it is an estimate (Sample.variance)."""

    @property
    def error(self) -> float:
        """The standard error of `own`, as a part of it."""
        return math.sqrt(self.variance) / self.own if self.own > 0 else 0.0

    @property
    def is_ranked(self) -> bool:
        """Whether `own` is known well enough for a rank and a share."""
        return is_ranked(self.own, self.variance)


def function_sums(samples: Iterable[Sample], index: int = -1) -> list[FunctionSums]:
    """All functions with their values at `index`, largest own value first."""
    sums: dict[tuple[str, str], list[int]] = {}
    variances: dict[tuple[str, str], float] = {}
    for sample in samples:
        value = sample.values[index]
        keys = [(readable(frame.function), frame.file) for frame in sample.frames] or [
            (UNKNOWN, "")
        ]
        for key in dict.fromkeys(keys):  # once for a recursive function, too
            sums.setdefault(key, [0, 0])[1] += value
        sums[keys[0]][0] += value
        variances[keys[0]] = variances.get(keys[0], 0.0) + sample.variance
    rows = [
        FunctionSums(*key, own=own, total=total, variance=variances.get(key, 0.0))
        for key, (own, total) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.own, -row.total, row.function, row.file))


def render(
    profile: Profile,
    *,
    index: int = -1,
    value_heading: str = "",
    limit: int = 15,
    width: int | None,
    color: bool,
) -> str:
    """The functions with the largest values at `index`, as a table (see columns.table()).

    Without `value_heading`, the heading of the column is the sample type. Estimates of the value
    that is shown first have their standard errors beside them.
    """
    is_first = index % len(profile.sample_types) == default_index(profile)
    rows_found = function_sums(profile.samples, index)
    ranked = [row for row in rows_found if row.is_ranked or not is_first]
    unranked = [row for row in rows_found if not row.is_ranked and is_first]
    whole = sum(sample.values[index] for sample in profile.samples)
    ranked_whole = whole - sum(row.own for row in unranked)
    shown = [row for row in ranked[:limit] if row.own]
    value_type = profile.sample_types[index]
    is_estimate = is_first and any(row.variance for row in shown)

    def cells(value: int, error: float = 0) -> tuple[str, str]:
        digits = known_digits(error)
        text = amount(value, value_type.unit, color=color, digits=digits)
        return text, share(value, ranked_whole)

    names = [value_heading or heading(value_type.type), *_HEADINGS]
    rows = []
    for function in shown:
        row = [*cells(function.own, function.error if is_estimate else 0), *cells(function.total)]
        if is_estimate:
            row.insert(1, error_cell(function.error, color=color))
        rows.append(columns.Row(row, function.function))
    if is_estimate:
        names.insert(1, "Error")
    text = columns.table(names, rows, width=width, color=color)
    rest = sum(1 for row in ranked if row.own) - len(shown)
    more = f"; {counted(rest, 'more function')}" if rest else ""
    in_all = f"{amount(whole, value_type.unit, color=color)} in all{more}\n"
    return f"{text}{in_all}{unranked_line(len(unranked))}"
