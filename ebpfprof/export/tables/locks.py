"""Locks as a table: how long others waited for each, what released it, and what waited."""

from collections.abc import Iterator, Sequence

from ebpfprof.console import columns
from ebpfprof.console.text import counted, duration
from ebpfprof.export.tables.operations import operation_sums
from ebpfprof.export.tables.quantities import share
from ebpfprof.profile.evidence import are_releases_known
from ebpfprof.profile.model import Lock, Sample

_PLACES = 3
_INDENT = "  "
_HEADINGS = ("Delay", "Share", "Count", "Mean", "Held", "Lock")


def render(locks: Sequence[Lock], *, limit: int = 10, width: int | None, color: bool) -> str:
    """The first `limit` locks, each with the places that released it and that waited for it.

    "Held" is the mean of the holds of known length. Where too few releases of a lock were recorded
    (profile.evidence), it has neither a count nor means, and no places that released it. For
    `width` and `color` see columns.table(), which makes text of the target printable. Ends with a
    newline.
    """
    whole_ns = sum(lock.delay_ns for lock in locks)
    rows = [row for lock in locks[:limit] for row in _rows(lock, whole_ns)]
    text = columns.table(_HEADINGS, rows, width=width, color=color)
    return text + (f"... and {len(locks) - limit} more\n" if len(locks) > limit else "")


def _rows(lock: Lock, whole_ns: int) -> Iterator[columns.Row]:
    where = f"{lock.type or 'semaphore'} at {lock.address:#x}"
    is_known = are_releases_known(lock.releases)
    cells = (
        duration(lock.delay_ns),
        share(lock.delay_ns, whole_ns) or "-",
        str(lock.contentions) if is_known else "-",
        duration(lock.delay_ns / lock.contentions) if lock.contentions and is_known else "-",
        duration(lock.held_ns / lock.holds) if lock.holds and is_known else "-",
    )
    after = f" ({where})" if lock.name and lock.address else ""
    yield columns.Row(cells, lock.name or where, after=after)
    if is_known:
        yield from _places("released", lock.releases)
    yield from _places("waited for", lock.waits)
    yield from _places("still waited for", lock.still_waiting)


def _places(verb: str, samples: Sequence[Sample]) -> Iterator[columns.Row]:
    sums = [row for row in operation_sums(samples) if row.is_ranked]
    for pair in sums[:_PLACES]:
        line = f", {pair.file.rpartition('/')[2]}:{pair.line}" if pair.file else ""
        yield columns.Row(
            _numbers(pair.count, pair.value),
            pair.function + line,
            before=f"{_INDENT}{verb} by ",
            after=f": {pair.operation}",
            is_dim=True,
        )
    if rest := sums[_PLACES:]:
        numbers = _numbers(sum(place.count for place in rest), sum(place.value for place in rest))
        name = counted(len(rest), "more place")
        yield columns.Row(numbers, name, before=f"{_INDENT}{verb} in ", is_dim=True)


def _numbers(count: int, value_ns: int) -> tuple[str, ...]:
    mean = duration(value_ns / count) if count else "-"
    return duration(value_ns), "", str(count) if count else "-", mean, ""
