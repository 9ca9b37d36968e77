"""What stands out in a profile, in one sentence; and the sentence that is there if nothing does.

A finding needs evidence: many events, much waiting, and an estimate that is not rough.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ebpfprof.console.text import duration, percent, printable, quantity
from ebpfprof.export.go_quotes import readable
from ebpfprof.export.tables.functions import FunctionSums, function_sums
from ebpfprof.export.tables.operations import OperationSums, operation_sums
from ebpfprof.export.tables.quantities import known_digits
from ebpfprof.profile.evidence import MAX_ERROR, are_releases_known
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import Frame, Lock, Profile
from ebpfprof.profile.operations import frame_of_program, is_of_program
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


def summaries(profiles: Sequence[Profile], locks: Sequence[Lock], locks_kind: str) -> list[str]:
    """The findings of the profiles of one process; if there are none, a summary of the first.

    `locks` belong to the profile of kind `locks_kind`.
    """
    sentences = [
        finding(profile, locks if profile.kind == locks_kind else ()) for profile in profiles
    ]
    return [sentence for sentence in sentences if sentence] or [
        sentence for sentence in map(summary, profiles[:1]) if sentence
    ]


def summary(profile: Profile) -> str:
    """The largest place of a profile in which nothing may stand out, printable.

    "" for a profile of an unknown kind, or of releases of which too few are known.
    """
    kind = find_kind(profile.kind)
    if kind is None or not are_releases_known(profile.samples):
        return ""
    busy, hidden = split(kind.in_tables(profile))
    has_functions = kind.table.rows == "functions"
    if not any(sample.values[-1] for sample in busy.samples):
        return "Only idle waits were recorded." if hidden else _nothing(kind.nothing)
    if has_functions:
        function = function_sums(busy.samples)[0]
        error, value, count = function.error, function.own, 0
        whole = sum(sample.values[-1] for sample in busy.samples)
        share, place = value / whole, _function(busy, function)
    else:
        row = operation_sums(busy.samples, busy.module)[0]
        error, value, count, share = row.error, row.value, row.count, row.share
        place = f"{printable(row.operation)} in {_place(row)}"
    if error > MAX_ERROR:
        return (
            "The recording is too short, or sampled too little, to name the largest place; "
            "--max-overhead 0 records every wait."
        )
    unit = profile.sample_types[-1].unit
    amount = printable(quantity(value, unit, known_digits(error)))
    amount += f" +-{percent(error)}" if error else ""
    has_events = kind.table.count and len(profile.sample_types) > 1
    nouns = kind.events if count != 1 else kind.events.removesuffix("s")
    times = f" in {count:,} {nouns}" if has_events and count and not error else ""
    first = "" if share >= _MOST else "No single place stands out. The largest: "
    return f"{first}{percent(share)} {kind.headline} {place}, {amount}{times}."


def _nothing(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


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
    if not are_releases_known(profile.samples):
        return ""
    if kind.table.rows == "functions":
        longest = _of_functions(busy)
    else:
        longest = _of_operations(busy, has_events=bool(kind.table.count))
    return f"{longest[0]} {kind.headline} {longest[1]}." if longest else ""


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
    return f"{percent(share)} (give or take {percent(error)})", _function(profile, rows[0])


def _function(profile: Profile, row: FunctionSums) -> str:
    """A function without what it calls, and where the program's own code calls it, printable."""
    callers = Counter[Frame]()
    for sample in profile.samples:
        frames = sample.frames
        if frames and (readable(frames[0].function), frames[0].file) == (row.function, row.file):
            own = frame_of_program(frames, profile.module)
            if own and own is not frames[0]:
                callers[own] += sample.values[-1]
    if row.function.startswith("["):  # no function, as in "[other objects in use]"
        return printable(row.function)
    text = f"{printable(row.function)} itself"
    if is_of_program(row.function, profile.module) or not callers:
        return text
    own = callers.most_common(1)[0][0]
    return f"{text}, called in {_place_of(readable(own.function), own.file, own.line)}"


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
    estimate = f", {_estimate(top.value, top.error)}" if top.error else ""
    mean = f", mean {duration(top.mean)}" if has_events and not top.error else ""
    if mean and top.operation in _SEVERAL_WAITS:
        mean += f" ({_SEVERAL_WAITS[top.operation]})"
    waker = f", woken by {_place_of(*top.waker[1:])}" if top.waker else ""
    place = f"{printable(top.operation)} in {_place(top)}{waker}"
    return percent(top.share), f"{place}{mean}{estimate}"


def _of_lock(profile: Profile, lock: Lock) -> str:
    """A sentence about one lock, with all waits for it; "" if it does not stand out."""
    whole_ns = sum(sample.values[-1] for sample in profile.samples)
    share = min(1.0, lock.delay_ns / whole_ns) if whole_ns else 0.0
    is_known = are_releases_known(lock.releases)
    count = lock.contentions if is_known else sum(wait.values[0] for wait in lock.waits)
    if not lock.address or not _is_much(profile, lock.delay_ns, count, share):
        return ""
    rows = operation_sums(lock.releases, profile.module)
    error = math.sqrt(sum(row.variance for row in rows)) / lock.delay_ns
    if error > _MAX_ERROR:
        return ""
    name = printable(lock.name or f"{lock.type or 'the semaphore'} at {lock.address:#x}")
    estimate = f" ({_estimate(lock.delay_ns, error)})" if error else ""
    sentence = f"{percent(share)} of the waiting for locks is for one{estimate}, {name}"
    if lock.holds >= _LEAST_EVENTS and is_known:
        sentence += f", held for {duration(lock.held_ns / lock.holds)} on average"
        if rows[0].count >= _NEARLY_ALL * lock.contentions:
            sentence += f" by {_place(rows[0])}"
    return f"{sentence}."


def _estimate(value_ns: float, error: float) -> str:
    """A time and its standard error: "22.8 s +-5.8 %"."""
    return f"{duration(value_ns, known_digits(error))} +-{percent(error)}"


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
