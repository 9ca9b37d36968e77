"""Times on the command line: of the day, of a date, or ago; in the local time zone."""

from __future__ import annotations

import re
import time
from datetime import date, datetime, timedelta
from typing import Final

from ebpfprof.console.quantities import seconds_of
from ebpfprof.console.text import printable

Span = tuple[int, int]
"""Begin and end, in ns of Unix time."""

_NS: Final = 1_000_000_000
_CLOCK: Final = r"(\d{1,2}):(\d\d)(?::(\d\d))?"
_OF_DAY: Final = re.compile(_CLOCK)
_OF_DATE: Final = re.compile(
    rf"(\d{{4}}-\d\d-\d\d|today|yesterday)(?:[T ]\s*{_CLOCK}\s*(Z|[+-]\d\d:?\d\d)?)?"
)
_FIRST_YEAR, _LAST_YEAR = 1971, 2261  # in 64 bits of ns
_HOWTO: Final = (
    "Write a time of day (03:00), a date and time ('2026-11-25 03:00', 'yesterday 03:00'), a "
    "duration (2h, 90m) for that long ago, or now."
)


def span_of(since: str | None, until: str | None, now_s: float, *, default_s: float) -> Span:
    """The span of --since and --until; without --since, it begins `default_s` before the end.

    A time of day is the last one before `now_s`; for --until, the first one after --since. If a
    time occurs twice because clocks were set back, --since is the first and --until the second.
    Raises ValueError with a sentence.
    """
    now_ns = round(now_s * _NS)
    begun_ns = None if since is None else time_of(since, now_s)
    if until is None:
        until_ns = now_ns
    elif begun_ns is not None and _OF_DAY.fullmatch(until.strip()):
        until_ns = min(now_ns, _first_after(until.strip(), begun_ns, now_s))
    else:
        until_ns = min(now_ns, time_of(until, now_s, is_end=True))
    if begun_ns is None:
        begun_ns = until_ns - round(default_s * _NS)
    if begun_ns >= until_ns:
        raise ValueError(
            f"The time ends ({shown(until_ns)}) before it begins ({shown(begun_ns)}): choose "
            "another --since or --until."
        )
    return max(begun_ns, 0), until_ns


def time_of(text: str, now_s: float, *, is_end: bool = False) -> int:
    """The time of a text, in ns of Unix time. Raises ValueError with a sentence.

    If it occurs twice because clocks were set back, it is the first; with `is_end` the second.
    """
    text = text.strip()
    if text == "now":
        return round(now_s * _NS)
    today = datetime.fromtimestamp(now_s).date()
    if match := _OF_DAY.fullmatch(text):
        time_ns = _local(today, match.groups(), is_end=is_end)
        if time_ns > now_s * _NS:
            time_ns = _local(today - timedelta(days=1), match.groups(), is_end=is_end)
        return time_ns
    if match := _OF_DATE.fullmatch(text):
        day, *clock, zone = match.groups()
        return _local(_day(day, today, text), clock, zone, is_end=is_end)
    ago_s = seconds_of(text.removesuffix(" ago").strip())
    if ago_s is None or ago_s < 0:
        raise ValueError(f"'{printable(text)}' is not a time. {_HOWTO}")
    return round((now_s - ago_s) * _NS)


def shown(time_ns: int) -> str:
    """A local time: 2026-11-25 03:12:00."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ns // _NS))


def of_day(time_ns: int, span: Span) -> str:
    """A time in `span`: 03:12:00, with the date if the span has several."""
    is_short = shown(span[0])[:10] == shown(span[1])[:10]
    return shown(time_ns)[11:] if is_short else shown(time_ns)[5:]


def span_shown(span: Span) -> str:
    """A time with its zone: 2026-11-25 03:00:00 to 03:20:00, CET (UTC+01:00)."""
    first, last = (_zone(time_ns) for time_ns in span)
    if first != last:
        return f"{shown(span[0])}, {first}, to {shown(span[1])}, {last}"
    end = shown(span[1])
    if end[:10] == shown(span[0])[:10]:
        end = end[11:]
    return f"{shown(span[0])} to {end}, {first}"


def iso(time_ns: int) -> str:
    """A time for programs: ISO 8601, with the offset of the local zone."""
    return datetime.fromtimestamp(time_ns / _NS).astimezone().isoformat(timespec="seconds")


def _zone(time_ns: int) -> str:
    local = time.localtime(time_ns // _NS)
    offset = time.strftime("%z", local)
    name = local.tm_zone
    offset = f"UTC{offset[:3]}:{offset[3:]}"
    return name if name == "UTC" else f"{name} ({offset})" if name[:1].isalpha() else offset


def _first_after(text: str, begun_ns: int, now_s: float) -> int:
    """The first such time of day after another time."""
    match = _OF_DAY.fullmatch(text)
    assert match
    day = datetime.fromtimestamp(begun_ns / _NS).date()
    time_ns = _local(day, match.groups(), is_end=True)
    if time_ns <= begun_ns:
        time_ns = _local(day + timedelta(days=1), match.groups(), is_end=True)
    return time_ns


def _day(text: str, today: date, whole: str) -> date:
    if text == "today":
        return today
    if text == "yesterday":
        return today - timedelta(days=1)
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"'{printable(whole)}' is not a date. {_HOWTO}") from error


def _local(
    day: date,
    clock: tuple[str | None, ...] | list[str | None],
    zone: str | None = None,
    *,
    is_end: bool,
) -> int:
    hour, minute, second = (int(part or 0) for part in clock)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{hour}:{minute:02}:{second:02} is not a time of day, 00:00 to 23:59:59.")
    if not _FIRST_YEAR <= day.year <= _LAST_YEAR:
        raise ValueError(f"{day} is out of range.")
    return _unix(datetime(day.year, day.month, day.day, hour, minute, second), zone, is_end)


def _unix(naive: datetime, zone: str | None, is_end: bool) -> int:
    if zone:
        offset = "+00:00" if zone == "Z" else zone
        moment = datetime.fromisoformat(f"{naive.isoformat()}{offset[:3]}:{offset[-2:]}")
        return round(moment.timestamp()) * _NS
    seconds = naive.replace(fold=int(is_end)).timestamp()
    if datetime.fromtimestamp(seconds) != naive:
        raise ValueError(f"There was no {naive.time()} on {naive.date()}: clocks were set forward.")
    return round(seconds) * _NS
