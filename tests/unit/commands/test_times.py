"""Times on the command line, in zones with clocks that are set forward and back."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from ebpfprof.commands.times import of_day, shown, span_of, span_shown, time_of

NS = 1_000_000_000
HOUR_NS = 3600 * NS


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CET, and CEST from 2026-03-29 02:00 to 2026-10-25 03:00; without time zone data."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.delenv("TZ")
    if before := os.environ.get("TZ"):
        monkeypatch.setenv("TZ", before)
    time.tzset()


pytestmark = pytest.mark.usefixtures("berlin")


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW_S = utc("2026-11-25 08:00:30")  # 09:00:30 CET


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-11-25 08:00:30"),
        ("03:12", "2026-11-25 02:12:00"),
        ("3:12:05", "2026-11-25 02:12:05"),
        ("09:00", "2026-11-25 08:00:00"),
        ("09:01", "2026-11-24 08:01:00"),
        ("23:59", "2026-11-24 22:59:00"),
        ("2026-11-20 03:00", "2026-11-20 02:00:00"),
        ("2026-11-20T03:00:07", "2026-11-20 02:00:07"),
        ("2026-11-20", "2026-11-19 23:00:00"),
        ("2026-11-20 03:00Z", "2026-11-20 03:00:00"),
        ("2026-11-20 03:00 +05:30", "2026-11-19 21:30:00"),
        ("2026-07-01 03:00", "2026-07-01 01:00:00"),
        ("yesterday 03:00", "2026-11-24 02:00:00"),
        ("yesterday", "2026-11-23 23:00:00"),
        ("today 03:00", "2026-11-25 02:00:00"),
        ("2h", "2026-11-25 06:00:30"),
        ("1h30m ago", "2026-11-25 06:30:30"),
        ("90", "2026-11-25 07:59:00"),
    ],
)
def test_a_time_is_found(text: str, expected: str) -> None:
    assert time_of(text, NOW_S) == round(utc(expected) * NS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soon", "'soon' is not a time. Write a time of day"),
        ("", "'' is not a time"),
        ("-5m", "'-5m' is not a time"),
        ("25:00", "25:00:00 is not a time of day"),
        ("03:60", "3:60:00 is not a time of day"),
        ("2026-13-01 03:00", "'2026-13-01 03:00' is not a date"),
        ("2026-02-30", "'2026-02-30' is not a date"),
        ("0001-01-01", "0001-01-01 is out of range"),
        ("9999-12-31 23:59", "9999-12-31 is out of range"),
        ("2026-03-29 02:30", "There was no 02:30:00 on 2026-03-29: clocks were set forward"),
        ("03:00\x1b[31m", r"'03:00\x1b[31m' is not a time"),
    ],
)
def test_what_is_not_a_time_is_refused_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        time_of(text, NOW_S)


def span(since: str | None, until: str | None, now_s: float = NOW_S) -> str:
    return span_shown(span_of(since, until, now_s, default_s=3600))


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("03:00", "03:20", "2026-11-25 03:00:00 to 03:20:00, CET (UTC+01:00)"),
        ("23:50", "00:10", "2026-11-24 23:50:00 to 2026-11-25 00:10:00, CET (UTC+01:00)"),
        ("10:00", None, "2026-11-24 10:00:00 to 2026-11-25 09:00:30, CET (UTC+01:00)"),
        (None, None, "2026-11-25 08:00:30 to 09:00:30, CET (UTC+01:00)"),
        (None, "03:00", "2026-11-25 02:00:00 to 03:00:00, CET (UTC+01:00)"),
        ("2026-11-20 03:00", "03:20", "2026-11-20 03:00:00 to 03:20:00, CET (UTC+01:00)"),
        ("3h", "1h", "2026-11-25 06:00:30 to 08:00:30, CET (UTC+01:00)"),
        ("08:00", "2026-12-24", "2026-11-25 08:00:00 to 09:00:30, CET (UTC+01:00)"),
        (
            "2026-10-25 01:00",
            "2026-10-25 04:00",
            "2026-10-25 01:00:00, CEST (UTC+02:00), to 2026-10-25 04:00:00, CET (UTC+01:00)",
        ),
    ],
)
def test_since_and_until_make_a_span(since: str | None, until: str | None, expected: str) -> None:
    assert span(since, until) == expected


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ends \(2026-11-25 06:00:30\) before it begins"):
        span("1h", "3h")


def test_shortly_after_midnight_the_evening_is_yesterdays() -> None:
    now_s = utc("2026-11-24 23:05:00")  # 00:05
    assert span("23:50", "00:10", now_s) == (
        "2026-11-24 23:50:00 to 2026-11-25 00:05:00, CET (UTC+01:00)"
    )


def test_an_hour_that_comes_twice_counts_as_a_whole() -> None:
    """02:00 to 03:00 is two hours when clocks are set back at 03:00."""
    begun_ns, until_ns = span_of("2026-10-25 02:10", "2026-10-25 02:50", NOW_S, default_s=3600)
    assert until_ns - begun_ns == HOUR_NS + 40 * 60 * NS
    assert begun_ns == round(utc("2026-10-25 00:10:00") * NS)
    begun_ns, until_ns = span_of("2026-10-25 02:10", "02:50", NOW_S, default_s=3600)
    assert until_ns == round(utc("2026-10-25 01:50:00") * NS)


def test_a_day_on_which_clocks_are_set_has_23_or_25_hours() -> None:
    for day, after, hours in (("03-29", "03-30", 23), ("10-25", "10-26", 25)):
        begun_ns, until_ns = span_of(f"2026-{day}", f"2026-{after}", NOW_S, default_s=3600)
        assert (until_ns - begun_ns) / HOUR_NS == hours


def test_times_within_a_day_are_short() -> None:
    at_ns = time_of("03:12", NOW_S)
    assert of_day(at_ns, (at_ns, at_ns + NS)) == "03:12:00"
    assert of_day(at_ns, (at_ns - 24 * HOUR_NS, at_ns)) == "11-25 03:12:00"
    assert shown(at_ns) == "2026-11-25 03:12:00"
