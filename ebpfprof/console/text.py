"""Text for people: strings of targets made harmless, and numbers with units."""

import re
from collections.abc import Sequence
from typing import Final

from ebpfprof.errors import INDENT

_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|[num]?s|min|h|[KMGT]iB|B)(?!\w))")
_KEPT: Final = "\0"  # in place of a space that stays in its line
_UNITS = (
    (3_600_000_000_000, "h"),
    (60_000_000_000, "min"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
)
_NS = {"nanoseconds": 1, "microseconds": 1_000, "milliseconds": 1_000_000, "seconds": 1_000_000_000}
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def printable(text: str, *, ascii_only: bool = False) -> str:
    r"""Return `text` with every character that a terminal might act on made visible.

    Control characters, escape sequences, bidirectional overrides, line separators and bytes
    that were no UTF-8 become backslash escapes such as \x1b; with `ascii_only` all but ASCII
    does. Apply it to every name that comes from a target before it is shown.
    """
    if text.isprintable() and (not ascii_only or text.isascii()):
        return text
    return "".join(
        c if c.isprintable() and (not ascii_only or c.isascii()) else _escape(c) for c in text
    )


def well_formed(text: str) -> str:
    r"""Return `text` with what was no UTF-8 as backslash escapes: strict readers refuse it."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def duration(ns: float, digits: int = 3) -> str:
    """A duration of `ns` nanoseconds with one to three digits: 1.23 s, 45.6 ms, 789 us."""
    ns = _rounded(ns, digits)
    for size, unit in _UNITS:
        # 0.9995 of a unit would round to 1000 of the next smaller one.
        if abs(ns) >= size * 0.9995:
            return f"{_with_digits(ns / size, digits)} {unit}"
    return f"{ns:.0f} ns"


def ages(newest_ns: float, oldest_ns: float, digits: int = 3) -> str:
    """The newest and the oldest of several ages (ns): "3 s to 1.1 h"; one if they read alike."""
    newest, oldest = duration(newest_ns, digits), duration(oldest_ns, digits)
    return oldest if newest == oldest else f"{newest} to {oldest}"


def quantity(value: float, unit: str, digits: int = 3) -> str:
    """A value in one of pprof's units: a duration, 1.23 MiB, or the number with its unit.

    Durations and sizes have one to three `digits`.

    Not fit for a terminal before printable(), unless the unit is known to be.
    """
    if unit in _NS:
        return duration(value * _NS[unit], digits)
    if unit == "count":
        return f"{value:.0f}"
    if unit != "bytes":
        return f"{value:.0f} {unit}".rstrip()
    for size, name in _BYTES:
        if abs(value) >= size * 0.9995:
            return f"{_with_digits(value / size, digits)} {name}"
    return f"{value:.0f} B"


def in_one_line(text: str) -> str:
    """A message with commands to type, for a place that has one line, such as a log."""
    return text.replace(f"\n{INDENT}", " ")


def wrapped(text: str, columns: int) -> str:
    """The text with lines of at most `columns`, broken at words.

    Indented lines stay whole: tables, stacks, commands to type. So do escape sequences.
    """
    if "\x1b" in text:
        return text
    return "\n".join(_in_columns(line, columns) for line in text.split("\n"))


def _in_columns(line: str, columns: int) -> str:
    if len(line) <= columns or line.startswith(" "):
        return line
    # Importing textwrap takes a few milliseconds: only long lines pay for it.
    from textwrap import wrap

    lines = wrap(
        _BEFORE_UNIT.sub(_KEPT, line),
        columns,
        replace_whitespace=False,
        expand_tabs=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_KEPT, " ")


def listed(words: Sequence[str]) -> str:
    """One word or more in a sentence: "block", "block and cpu", "block, mutex and cpu"."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def counted(number: int, noun: str) -> str:
    """The number with its noun: 1 wait, 2 waits."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rounded(value: float, digits: int) -> float:
    """The value with `digits` digits; unchanged with three."""
    return value if digits >= 3 else float(f"{value:.{digits}g}")


def _with_digits(value: float, digits: int) -> str:
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    places = 1 if abs(value) >= 9.995 else 2
    return f"{value:.{max(0, places - 3 + digits)}f}"


def percent(share: float) -> str:
    """A part of 1, such as "2.5 %"."""
    hundredths = 100 * share
    if 0 < hundredths < 0.01:
        return "less than 0.01 %"
    return f"{hundredths:.2g} %" if hundredths < 10 else f"{hundredths:.0f} %"
