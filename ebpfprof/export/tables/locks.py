"""Locks as a table: how long others waited for each, what released it, and what waited."""

from collections.abc import Iterator, Sequence
from typing import Final

from ebpfprof.console import columns
from ebpfprof.console.text import counted, duration
from ebpfprof.export.tables.lengths import LENGTHS, NOT_KNOWN, fitting_table, length_cell
from ebpfprof.export.tables.operations import OperationSums, operation_sums
from ebpfprof.export.tables.quantities import share
from ebpfprof.profile.evidence import are_releases_known
from ebpfprof.profile.model import Lock, Sample

_PLACES = 3
_INDENT = "  "
_FIRST: Final = ("Delay", "Share", "Count", "Mean")
_WITHOUT_LENGTHS: Final = ((*_FIRST, "Held"),)
_OF_HOLDS: Final = {"Held p99": "p99", "Held max": "Max"}
# From the widest to the narrowest table.
_WITH_LENGTHS: Final = (
    (*_FIRST, *LENGTHS, "Held", *_OF_HOLDS),
    (*_FIRST, "p99", "Max", "Held", "Held p99"),
    (*_FIRST, "p99", "Held", "Held p99"),
    (*_FIRST, "p99", "Held"),
    *_WITHOUT_LENGTHS,
)


def render(locks: Sequence[Lock], *, limit: int = 10, width: int | None, color: bool) -> str:
    """The first `limit` locks, each with the places that released it and that waited for it.

    "Held" is the mean of the holds of known length. Where quantiles of delays or of holds are
    known, there are as many as fit. Where too few releases of a lock were recorded
    (profile.evidence), it has neither a count nor means, and no places that released it. For
    `width` and `color` see columns.table(), which makes text of the target printable. Ends with a
    newline.
    """
    whole_ns = sum(lock.delay_ns for lock in locks)
    shown = locks[:limit]

    def rows(headings: Sequence[str]) -> list[columns.Row]:
        return [row for lock in shown for row in _rows(lock, whole_ns, headings, color=color)]

    choices = _WITH_LENGTHS if any(map(_has_lengths, shown)) else _WITHOUT_LENGTHS
    text = fitting_table(choices, rows, ("Lock",), width=width, color=color)
    return text + (f"... and {len(locks) - limit} more\n" if len(locks) > limit else "")


def _has_lengths(lock: Lock) -> bool:
    sums = [*operation_sums(lock.releases), *operation_sums(lock.waits)]
    of_holds = (_of_holds(lock, heading, color=False) for heading in _OF_HOLDS)
    return any(row.has_lengths for row in sums) or any(cell != NOT_KNOWN for cell in of_holds)


def _rows(
    lock: Lock, whole_ns: int, headings: Sequence[str], *, color: bool
) -> Iterator[columns.Row]:
    where = f"{lock.type or 'semaphore'} at {lock.address:#x}"
    is_known = are_releases_known(lock.releases)
    contentions = lock.contentions

    def cell(heading: str) -> str:
        match heading:
            case "Delay":
                return duration(lock.delay_ns)
            case "Share":
                return share(lock.delay_ns, whole_ns) or NOT_KNOWN
            case _ if not is_known:
                return NOT_KNOWN
            case "Count":
                return str(contentions)
            case "Mean":
                return duration(lock.delay_ns / contentions) if contentions else NOT_KNOWN
            case "Held":
                return duration(lock.held_ns / lock.holds) if lock.holds else NOT_KNOWN
            case _ if heading in _OF_HOLDS:
                return _of_holds(lock, heading, color=color)
        variance = sum(sample.count_variance for sample in lock.releases)
        lengths = lock.release_lengths
        return length_cell(lengths, heading, waits=contentions, variance=variance, color=color)

    after = f" ({where})" if lock.name and lock.address else ""
    yield columns.Row([*map(cell, headings)], lock.name or where, after=after)
    if is_known:
        yield from _places("released", lock.releases, headings, color=color)
    yield from _places("waited for", lock.waits, headings, color=color)
    yield from _places("still waited for", lock.still_waiting, headings, color=color)


def _of_holds(lock: Lock, heading: str, *, color: bool) -> str:
    name = _OF_HOLDS[heading]
    return length_cell(lock.hold_lengths, name, waits=0, variance=0, color=color)


def _places(
    verb: str, samples: Sequence[Sample], headings: Sequence[str], *, color: bool
) -> Iterator[columns.Row]:
    sums = [row for row in operation_sums(samples) if row.is_ranked]
    for pair in sums[:_PLACES]:
        line = f", {pair.file.rpartition('/')[2]}:{pair.line}" if pair.file else ""
        yield columns.Row(
            _numbers(pair.count, pair.value, headings, pair, color=color),
            pair.function + line,
            before=f"{_INDENT}{verb} by ",
            after=f": {pair.operation}",
            is_dim=True,
        )
    if rest := sums[_PLACES:]:
        count, value = sum(place.count for place in rest), sum(place.value for place in rest)
        numbers = _numbers(count, value, headings, color=color)
        name = counted(len(rest), "more place")
        yield columns.Row(numbers, name, before=f"{_INDENT}{verb} in ", is_dim=True)


def _numbers(
    count: int,
    value_ns: int,
    headings: Sequence[str],
    sums: OperationSums | None = None,
    *,
    color: bool,
) -> list[str]:
    """The cells of a place; `sums` has its lengths."""

    def cell(heading: str) -> str:
        match heading:
            case "Delay":
                return duration(value_ns)
            case "Count":
                return str(count) if count else NOT_KNOWN
            case "Mean":
                return duration(value_ns / count) if count else NOT_KNOWN
            case _ if heading in LENGTHS and sums:
                return sums.length_cell(heading, color=color)
        return ""

    return [*map(cell, headings)]
