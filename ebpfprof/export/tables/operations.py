"""A profile as a table of operations: the sums of each operation and the line that called it."""

from collections.abc import Iterable
from dataclasses import dataclass

from ebpfprof.export.tables import columns
from ebpfprof.export.tables.quantities import amount
from ebpfprof.profile.kind import Table
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profile.operations import caller, operation


@dataclass(frozen=True, slots=True)
class OperationSums:
    """The sums of all samples with one operation called from one line.

    `count` is the sum of their first values, `value` the sum of their last ones, `share` the part
    (0 to 1) of the last values of all samples. Text comes from the target unchanged: pass it
    through text.printable() before a terminal.
    """

    operation: str
    function: str
    file: str
    line: int
    count: int
    value: int
    share: float

    @property
    def mean(self) -> float:
        """The mean value of one event."""
        return self.value / self.count if self.count else 0.0


def operation_sums(samples: Iterable[Sample]) -> list[OperationSums]:
    """The sums for each operation and the line that called it, largest value first."""
    sums: dict[tuple[str, str, str, int], list[int]] = {}
    for sample in samples:
        frames = sample.frames
        line = caller(frames)
        key = (operation(frames), line.function, line.file, line.line)
        total = sums.setdefault(key, [0, 0])
        total[0] += sample.values[0]
        total[1] += sample.values[-1]
    whole = sum(value for _, value in sums.values())
    ordered = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    return [
        OperationSums(*key, count=count, value=value, share=value / whole if whole else 0.0)
        for key, (count, value) in ordered
    ]


def render(
    profile: Profile,
    *,
    table: Table,
    limit: int = 10,
    width: int | None,
    color: bool,
) -> str:
    """The first rows as a table (see columns.table()), with the headings of `table`.

    A profile of a single value has no column for its count, and no mean.
    """
    unit = profile.sample_types[-1].unit
    names = [table.value, "Share", table.count, "Mean", "Operation", table.place[0]]
    is_single = len(profile.sample_types) == 1
    if is_single:
        del names[2:4]
    rows = []
    for each in operation_sums(profile.samples)[:limit]:
        cells = [amount(each.value, unit, color=color), f"{100 * each.share:.1f}%"]
        if not is_single:
            cells += [str(each.count), amount(each.mean, unit, color=color)]
        cells.append(columns.operation_cell(each.operation, color=color))
        below = f"{each.file}:{each.line}" if each.file else ""
        rows.append(columns.Row(cells, each.function, below=below))
    return columns.table(names, rows, left=2, width=width, color=color)
