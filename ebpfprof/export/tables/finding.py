"""What stands out in a profile, in one sentence: only where one place makes most of it.

Nothing is said on thin evidence: of few events, of little waiting, or of an estimate that is rough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ebpfprof.console.text import duration, percent, printable
from ebpfprof.export.tables.functions import function_sums
from ebpfprof.export.tables.operations import OperationSums, operation_sums
from ebpfprof.profile.evidence import are_releases_known
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import Lock, Profile
from ebpfprof.profilers.registry import find_kind

_MOST: Final = 0.5  # of all waiting
_MUCH: Final = 1 / 3  # of all CPU time
_LEAST_EVENTS: Final = 100
_LEAST_WAITING: Final = 0.1  # goroutines that wait at a time, on average
_MAX_ERROR: Final = 0.1
_SURE: Final = 2  # standard errors
_NEARLY_ALL: Final = 0.9
_SEVERAL_WAITS: Final = {"HTTP answer": "a request has two of these waits or more"}
"""Operations that wait more than once: net/http's roundTrip first waits until the request is
written, then for the answer (net/http/transport.go, Go 1.19 to 1.27)."""


def finding(profile: Profile, locks: Sequence[Lock] = ()) -> str:
    """The sentence, printable; "" if nothing stands out.

    `locks` are those of a mutex profile, largest first, if they were recorded.
    """
    kind = find_kind(profile.kind)
    if kind is None or kind.is_moment or not profile.samples or not profile.duration_ns:
        return ""
    busy, _ = split(kind.in_tables(profile))
    if locks and (sentence := _of_lock(busy, locks[0])):
        return sentence
    if kind.table.rows == "functions":
        found = _of_functions(busy)
    else:
        found = _of_operations(busy, has_events=bool(kind.table.count))
    return f"{found[0]} {kind.headline} {found[1]}." if found else ""


def _of_functions(profile: Profile) -> tuple[str, str] | None:
    """The share of one function, without what it calls; and what it is."""
    count = sum(sample.values[0] for sample in profile.samples)
    whole = sum(sample.values[-1] for sample in profile.samples)
    rows = function_sums(profile.samples)
    if count < _LEAST_EVENTS or not whole or not rows:
        return None
    share = rows[0].own / whole
    error = math.sqrt(share * (1 - share) / count)
    if share - _SURE * error < _MUCH:
        return None
    told = f"{percent(share)} (give or take {percent(error)})"
    return told, f"{printable(rows[0].function)} itself"


def _of_operations(profile: Profile, *, has_events: bool) -> tuple[str, str] | None:
    """The share of one operation, called from one line; and what it is.

    `has_events`: the count of a sample is of events, so that their mean says something.
    """
    rows = operation_sums(profile.samples, profile.module)
    if len(rows) < 2 or not _is_much(profile, rows[0].value, rows[0].count, rows[0].share):
        return None
    top = rows[0]
    if top.error > _MAX_ERROR:
        return None
    told = f", a time estimated to {percent(top.error)}" if top.error else ""
    mean = f", {duration(top.mean)} a wait" if has_events and not top.error else ""
    if mean and top.operation in _SEVERAL_WAITS:
        mean += f" ({_SEVERAL_WAITS[top.operation]})"
    waker = f", woken by {_place_of(*top.waker[1:])}" if top.waker else ""
    what = f"{printable(top.operation)} in {_place(top)}{waker}"
    return percent(top.share), f"{what}{mean}{told}"


def _of_lock(profile: Profile, lock: Lock) -> str:
    """A sentence about one lock, with all waits for it; "" if it does not stand out."""
    whole_ns = sum(sample.values[-1] for sample in profile.samples)
    share = min(1.0, lock.delay_ns / whole_ns) if whole_ns else 0.0
    is_known = are_releases_known(lock.releases)
    count = lock.contentions if is_known else sum(each.values[0] for each in lock.waits)
    if not lock.address or not _is_much(profile, lock.delay_ns, count, share):
        return ""
    rows = operation_sums(lock.releases, profile.module)
    error = math.sqrt(sum(row.variance for row in rows)) / lock.delay_ns
    if error > _MAX_ERROR:
        return ""
    name = printable(lock.name or f"{lock.type or 'the semaphore'} at {lock.address:#x}")
    told = f" (a time estimated to {percent(error)})" if error else ""
    sentence = f"{percent(share)} of the waiting for locks is for one{told}, {name}"
    if lock.holds >= _LEAST_EVENTS and is_known:
        sentence += f", held for {duration(lock.held_ns / lock.holds)} at a time"
        if rows[0].count >= _NEARLY_ALL * lock.contentions:
            sentence += f" by {_place(rows[0])}"
    return f"{sentence}."


def _is_much(profile: Profile, waited_ns: float, count: float, share: float) -> bool:
    waiting = waited_ns / profile.duration_ns
    return share >= _MOST and count >= _LEAST_EVENTS and waiting >= _LEAST_WAITING


def _place(row: OperationSums) -> str:
    frame = row.program
    function, file, line = row.function, row.file, row.line
    if frame:
        function, file, line = frame.function, frame.file, frame.line
    return _place_of(function, file, line)


def _place_of(function: str, file: str, line: int) -> str:
    where = f" ({file.rpartition('/')[2]}:{line})" if file else ""
    return printable(f"{function}{where}")
