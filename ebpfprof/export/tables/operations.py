"""A profile as a table of operations: the sums of each operation and the line that called it."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ebpfprof.console import columns
from ebpfprof.console.text import printable
from ebpfprof.export.go_quotes import readable
from ebpfprof.export.tables.lengths import LENGTHS, NOT_KNOWN, fitting_table, length_cell
from ebpfprof.export.tables.quantities import amount, count_cell, error_cell, known_digits
from ebpfprof.profile.evidence import few_releases, is_ranked, unranked_line
from ebpfprof.profile.kind import Table
from ebpfprof.profile.model import Frame, Profile, Sample
from ebpfprof.profile.operations import frame_of_program, is_of_program, operation_of
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from ebpfprof.profile.wakers import waiter_of, waker_of

_WITHOUT_LENGTHS: Final = (("Mean",),)
# The columns of an event, from the widest to the narrowest table.
_WITH_LENGTHS: Final = (
    ("Mean", *LENGTHS),
    LENGTHS,
    ("p99", "Max"),
    ("p99",),
)


class CalledOperation(NamedTuple):
    """An operation and the line that called it."""

    operation: str
    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class OperationSums:
    """The sums of all samples with one operation called from one line, and woken by one `waker`.

    `count` is the sum of their first values, `value` the sum of their last ones, `share` the part
    (0 to 1) of the last values of all ranked rows, `variance` that of `value`, `count_variance`
    that of `count`. Text comes from the target unchanged: pass it through text.printable() before a
    terminal.
    """

    operation: str
    function: str
    file: str
    line: int
    count: int
    value: int
    share: float
    variance: float = 0.0
    count_variance: float = 0.0
    program: Frame | None = None
    """Where the program's own code comes in, if `function` is a library's: of most of the value."""
    waker: CalledOperation | None = None
    """What woke them, where samples are pairs (profile.wakers)."""
    lengths: WaitHistogram = NO_LENGTHS
    """How long these waits were, as far as that is known."""

    @property
    def error(self) -> float:
        """The standard error of `value`, as a part of it; 0 for a value that is exact."""
        return math.sqrt(self.variance) / self.value if self.value else 0.0

    @property
    def count_cell(self) -> str:
        """The count, with as many digits as are known; "-" if it may as well be near nothing."""
        return count_cell(self.count, self.count_variance) if self.count or not self.value else "-"

    def length_cell(self, heading: str, *, color: bool) -> str:
        """A cell of one of LENGTHS."""
        waits, variance = self.count, self.count_variance
        return length_cell(self.lengths, heading, waits=waits, variance=variance, color=color)

    @property
    def has_lengths(self) -> bool:
        """Whether one of LENGTHS is known."""
        return any(self.length_cell(heading, color=False) != NOT_KNOWN for heading in LENGTHS)

    @property
    def is_ranked(self) -> bool:
        """Whether `value` is known well enough for a rank and a share."""
        return is_ranked(self.value, self.variance)

    @property
    def count_error(self) -> float:
        """The standard error of `count`, as a part of it; 0 for a count that is exact."""
        return math.sqrt(self.count_variance) / self.count if self.count else 0.0

    @property
    def digits_of_mean(self) -> int:
        """How many digits of the mean are known."""
        return known_digits(max(self.error, self.count_error))

    @property
    def mean(self) -> float:
        """The mean value of one event."""
        return self.value / self.count if self.count else 0.0


def operation_sums(samples: Iterable[Sample], module: str = "") -> list[OperationSums]:
    """The sums for each operation and the line that called it, largest value first.

    Rows that have no rank (profile.evidence) come last, and have no share. Where samples are pairs,
    for each of these and what woke it.

    `module` is the path of the program's main module, "" if it is not known.
    """
    programs: dict[tuple[CalledOperation, CalledOperation | None], Counter[Frame]] = {}
    sums: dict[tuple[CalledOperation, CalledOperation | None], list[int]] = {}
    variances: dict[tuple[CalledOperation, CalledOperation | None], float] = {}
    of_counts: dict[tuple[CalledOperation, CalledOperation | None], float] = {}
    lengths: dict[tuple[CalledOperation, CalledOperation | None], WaitHistogram] = {}
    for sample in samples:
        _, line = operation_of(sample)
        by = waker_of(sample)
        key = _place(sample), _place(by) if by else None
        total = sums.setdefault(key, [0, 0])
        total[0] += sample.values[0]
        total[1] += sample.values[-1]
        variances[key] = variances.get(key, 0.0) + sample.variance
        of_counts[key] = of_counts.get(key, 0.0) + sample.count_variance
        lengths[key] = lengths.get(key, NO_LENGTHS) + sample.lengths
        if not is_of_program(line.function, module):
            own = frame_of_program(waiter_of(sample).frames, module)
            if own:
                programs.setdefault(key, Counter())[own] += sample.values[-1]
    ranked = {key for key, (_, value) in sums.items() if is_ranked(value, variances[key])}
    whole = sum(value for key, (_, value) in sums.items() if key in ranked)
    ordered = sorted(
        sums.items(),
        key=lambda item: (item[0] not in ranked, -item[1][1], item[0][0], item[0][1] or ()),
    )
    return [
        OperationSums(
            *key[0],
            count=count,
            value=value,
            share=value / whole if whole and key in ranked else 0.0,
            variance=variances[key],
            count_variance=of_counts[key],
            program=programs[key].most_common(1)[0][0] if key in programs else None,
            waker=key[1],
            lengths=lengths[key],
        )
        for key, (count, value) in ordered
    ]


def _place(sample: Sample) -> CalledOperation:
    name, line = operation_of(sample)
    return CalledOperation(readable(name), readable(line.function), line.file, line.line)


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

    A profile of a single value has no column for its count, and no mean; one whose count says
    nothing has neither, too. Where quantiles of the lengths of waits are known, there are as many
    as fit, if need be in place of the mean. Each row has one line if it `is_short`. Estimates have
    their standard errors beside them. Rows without a rank are left out, and counted below. Releases
    of locks have no rows if too few were recorded: the text says how to record them.
    """
    unit = profile.sample_types[-1].unit
    if said := few_releases(profile):
        whole = amount(sum(sample.values[-1] for sample in profile.samples), unit, color=color)
        return f"{whole} of waiting for locks. {printable(said, ascii_only=not color)}\n"
    rows_found = operation_sums(profile.samples, profile.module)
    ranked = [row for row in rows_found if row.is_ranked][:limit]
    below_table = unranked_line(sum(not row.is_ranked for row in rows_found))
    if not ranked:
        return below_table
    is_single = len(profile.sample_types) == 1 or not table.count
    of_event = _WITH_LENGTHS if any(row.has_lengths for row in ranked) else _WITHOUT_LENGTHS
    error = ("Error",) if any(row.variance for row in ranked) else ()
    first = (table.value, *error, "Share")

    def rows(headings: Sequence[str]) -> list[columns.Row]:
        return [
            _row(row, headings, table, unit=unit, is_short=is_short, color=color) for row in ranked
        ]

    choices = [first] if is_single else [(*first, table.count, *more) for more in of_event]
    names = ("Operation", table.place[0])
    return fitting_table(choices, rows, names, width=width, color=color) + below_table


def _row(
    sums: OperationSums,
    headings: Sequence[str],
    table: Table,
    *,
    unit: str,
    is_short: bool,
    color: bool,
) -> columns.Row:
    """The row of these sums, with a cell for each of the headings and for the operation."""

    def cell(heading: str) -> str:
        count = sums.count_cell
        match heading:
            case table.value:
                return amount(sums.value, unit, color=color, digits=known_digits(sums.error))
            case "Error":
                return error_cell(sums.error, color=color)
            case "Share":
                return f"{100 * sums.share:.1f}%"
            case table.count:
                return count
            case "Mean":
                mean = amount(sums.mean, unit, color=color, digits=sums.digits_of_mean)
                return "-" if count == "-" else mean
        return sums.length_cell(heading, color=color)

    cells = [*map(cell, headings), columns.operation_cell(sums.operation, color=color)]
    if is_short:
        place = f"  {sums.file.rpartition('/')[2]}:{sums.line}" if sums.file else ""
        return columns.Row(cells, sums.function, after=place)
    below = f"{sums.file}:{sums.line}" if sums.file else ""
    return columns.Row(cells, sums.function, below=below, origin=_origin(sums))


def _origin(row: OperationSums) -> str:
    if row.program is None:
        return ""
    frame = row.program
    where = f", {frame.file.rpartition('/')[2]}:{frame.line}" if frame.file else ""
    return f"from {readable(frame.function)}{where}"
