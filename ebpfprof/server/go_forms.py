"""How Go reads a path, a query and the numbers in it: what net/http makes of a request."""

import posixpath
import re
from urllib.parse import unquote_plus

_INT64_MAX = (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_INTEGER = re.compile(r"([+-]?)0*([0-9]*)", re.ASCII)
_LONGEST = len(str(_INT64_MAX))
# Underscores are for numbers with the base in them, between digits or behind the prefix.
_BASES = (
    (re.compile(r"0[xX]((?:_?[0-9a-fA-F])+)"), 16),
    (re.compile(r"0[bB]((?:_?[01])+)"), 2),
    (re.compile(r"0[oO]?((?:_?[0-7])+)"), 8),
    (re.compile(r"([1-9](?:_?[0-9])*|0)"), 10),
)
_MAX_DIGITS = 128


def form_value(query: bytes, key: str) -> str:
    """The first value of `key` in a raw query, "" if there is none.

    Malformed parts are skipped, as by net/url.ParseQuery.
    """
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if not part or ";" in part or _BAD_ESCAPE.search(part):
            continue
        if unquote_plus(name) == key:
            return unquote_plus(value)
    return ""


def clean_path(path: str) -> str:
    """A path without empty parts, "." and ".."; it begins with one slash (net/http, cleanPath)."""
    clean = posixpath.normpath("/" + path.lstrip("/"))
    return clean + "/" if path.endswith("/") and clean != "/" else clean


def parse_int(text: str) -> tuple[int, bool]:
    """strconv.ParseInt(text, 10, 64): the number, and whether it is one.

    A number that is too large gives the largest one (or smallest), as callers see it that ignore
    errors.
    """
    match = _INTEGER.fullmatch(text)
    if match is None or not text.strip("+-"):
        return 0, False
    sign, digits = match.groups()
    number = int(digits or "0") if len(digits) <= _LONGEST else _INT64_MAX + 2
    number = -number if sign == "-" else number
    kept = max(-_INT64_MAX - 1, min(number, _INT64_MAX))
    return kept, kept == number


def parse_address(text: str) -> int:
    """strconv.ParseUint(text, 0, 64), and 0 where that is an error."""
    for pattern, base in _BASES:
        match = pattern.fullmatch(text)
        if match and len(text) <= _MAX_DIGITS:
            return min(int(match[1].replace("_", ""), base), _UINT64_MAX)
    return 0
