"""Numbers of `ebpfprof top` as text: what there was of a profile kind's values in a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ebpfprof.console.text import duration, quantity
from ebpfprof.export.tables.quantities import error_cell, known_digits, rounded
from ebpfprof.profile.evidence import MAX_ERROR
from ebpfprof.profile.kind import ProfileKind

_MANY: Final = 59.95
_LEAST_ERROR: Final = 0.001
_MOST_ERROR: Final = 9.99
NONE: Final = "-"
"""What stands for a number that is not known."""
_SIGN: Final = "\N{PLUS-MINUS SIGN}"


def per(kind: ProfileKind) -> str:
    """What stands behind numbers of one second: "/s", or "" for a kind that shows a moment."""
    return "" if kind.is_moment else "/s"


def amount(kind: ProfileKind, rate: float, digits: int = 3) -> str:
    """Of the kind's last value that much in a second: `rate` is in seconds, or in 1e9 of its unit.

    Of a kind that shows a moment, the value at that moment. Times and sizes have one to three
    `digits`.
    """
    unit = kind.unit
    if unit == "nanoseconds" and not kind.is_moment:
        return in_a_second(rate, digits)
    return events(kind, 1e9 * rate) if unit == "count" else quantity(1e9 * rate, unit, digits)


def total(kind: ProfileKind, value: float, digits: int = 3) -> str:
    """Of the kind's last value that much in all."""
    return quantity(value, kind.unit, digits)


def error(relative: float, safe: Callable[[str], str] = str) -> str:
    """A standard error as a part of its value, at most seven columns; "" where there is none.

    `safe` is what makes text fit for the terminal: it knows whether that has the sign.
    """
    if relative <= 0:
        return ""
    if relative < _LEAST_ERROR:
        return "<0.1%"
    return ">999%" if relative > _MOST_ERROR else error_cell(relative, color=safe(_SIGN) == _SIGN)


def events(kind: ProfileKind, count: float) -> str:
    """Events in a second, or those of a moment."""
    return f"{count:,.0f}" if kind.is_moment else count_per_s(count)


def events_of(kind: ProfileKind, count: float, value: float, error: float) -> str:
    """Events in a second of which this is the value, with as many digits as are known.

    "-" if `error`, their standard error as a part of them, is too large; and where there is time
    and no event. Waits in progress: their time is known from goroutine samples, and they have not
    ended yet.
    """
    if error > MAX_ERROR or (not count and value > 0):
        return NONE
    text = events(kind, rounded(count, error))
    return text.removesuffix(".0") if known_digits(error) < 3 else text


def in_a_second(rate: float, digits: int = 3) -> str:
    """Seconds of delay in a second: as many as goroutines wait at a time, so never minutes."""
    if rate < _MANY:
        return duration(1e9 * rate, digits)
    return f"{rate if digits >= 3 else float(f'{rate:.{digits}g}'):,.0f} s"


def count_per_s(count: float) -> str:
    """Events in a second, with significant digits only."""
    return f"{count:,.0f}" if count >= 99.95 or not count else f"{count:.1f}"


def of_processor(rate: float) -> str:
    """Seconds of CPU time in a second."""
    return f"{100 * rate:.1f}%"


def share(rate: float, all_rates: float) -> str:
    """A rate as part of all rates."""
    return f"{100 * rate / all_rates:.1f}%" if all_rates > 0 else "-"
