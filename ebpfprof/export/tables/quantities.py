"""Values of a profile, and the names of their sample types, as cells of a table."""

import math

from ebpfprof.console.text import printable, quantity
from ebpfprof.profile.evidence import is_ranked

PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
_MAX_TEXT = 24


def amount(value: float, unit: str, *, color: bool, digits: int = 3) -> str:
    """A value with its unit, printable, since files may have any unit. ASCII without `color`."""
    return printable(quantity(value, unit, digits)[:_MAX_TEXT], ascii_only=not color)


def known_digits(error: float) -> int:
    """How many digits of a value are known, with a standard error of this part of it: 1 to 3."""
    if error <= 0:
        return 3
    return max(1, min(3, 1 - math.floor(math.log10(error))))


def rounded(value: float, error: float) -> float:
    """The value with as many digits as are known, with a standard error of this part of it."""
    return float(f"{value:.{known_digits(error)}g}") if error > 0 else value


def error_cell(error: float, *, color: bool) -> str:
    """A standard error as a part of its value (0 to 1): "" where there is none."""
    if error <= 0:
        return ""
    sign = PLUS_MINUS if color else "+-"
    return f"{sign}{100 * error:.2g}%" if error < 0.1 else f"{sign}{100 * error:.0f}%"


def count_cell(count: int, variance: float) -> str:
    """A count, with as many digits as are known; "-" if it may as well be near nothing."""
    if not is_ranked(count, variance):
        return "-"
    return str(round(rounded(count, math.sqrt(variance) / count if variance else 0.0)))


def share(value: float, whole: float) -> str:
    """The part of the whole in percent; "" if there is no whole."""
    return f"{100 * value / whole:.1f}%" if whole else ""


def heading(type_name: str) -> str:
    """The name of a sample type as the heading of a column: "Inuse space", "CPU"."""
    if type_name == "cpu":
        return "CPU"
    words = printable(type_name[:_MAX_TEXT], ascii_only=True).replace("_", " ")
    return words[:1].upper() + words[1:]
