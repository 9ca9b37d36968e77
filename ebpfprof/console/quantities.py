"""Lengths of time and sizes, as people write them; and what they may have meant."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_UNITS_S: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\u00b5s": 1e-6,  # both characters that look like this, as in Go's time.ParseDuration
    "\u03bcs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = rf"([0-9]+\.?[0-9]*|\.[0-9]+)({'|'.join(_UNITS_S)})"
_DAYS: Final = re.compile(r"([0-9]+\.?[0-9]*)d")
_SIZE: Final = re.compile(r"([0-9]+\.?[0-9]*) ?([KMGT]i?)?B?")
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def seconds_of(text: str, *, has_days: bool = False) -> float | None:
    """The seconds that a text stands for; None if it is no length of time.

    As Go writes it (10s, 1m30s, 500ms), or a number of seconds; with `has_days` also 7d.
    """
    if has_days and (days := _DAYS.fullmatch(text)):
        return float(days[1]) * 86400
    if re.fullmatch(f"(?:{_PART})+", text):
        seconds = sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(_PART, text))
    else:
        try:
            seconds = float(text)
        except ValueError:
            return None
    return seconds if math.isfinite(seconds) else None


def bytes_of(text: str) -> int | None:
    """The bytes that a text stands for (512MiB, 4GB, 100000); None if it is no size.

    KB, MB, GB and TB are powers of 1000, KiB and so on powers of 1024.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    unit = match[2] or ""
    base = 1024 if unit.endswith("i") else 1000
    return int(float(match[1]) * base ** _POWERS[unit.removesuffix("i")])


def similar(word: str, words: Iterable[str]) -> str:
    """A question behind a sentence, " Did you mean X?"; "" if no word is similar."""
    nearest = get_close_matches(word, list(words), n=1)
    return f" Did you mean {nearest[0]}?" if nearest else ""
