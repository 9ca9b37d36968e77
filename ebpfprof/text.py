"""Text for people: what a target says made harmless, and numbers with units."""

_UNITS = (
    (3_600_000_000_000, "h"),
    (60_000_000_000, "min"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
)


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


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def duration(ns: float) -> str:
    """A duration of `ns` nanoseconds with three digits and a unit: 1.23 s, 45.6 ms, 789 us."""
    for size, unit in _UNITS:
        # 0.9995 of a unit would round to 1000 of the next smaller one.
        if abs(ns) >= size * 0.9995:
            return f"{_three_digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def _three_digits(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
