"""Names and labels in the forms in which Go's runtime and its fmt package write them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MAX_CACHED = 1 << 16

_SHORT: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}
_SHORT_IN_RUNTIME: Final = frozenset('\n\r\t"\\')
_PLAIN: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_"  # needs no quotes
)
_DELETE: Final = "\x7f"
_BYTES: Final = range(0xDC80, 0xDD00)  # what is no UTF-8, as surrogateescape decodes it


def quoted(data: bytes) -> str:
    """A string as fmt's %q writes it (strconv.Quote, Go 1.19 to 1.27).

    Which characters are printable depends on the edition of Unicode: here it is Python's.
    """
    return '"' + "".join(map(_escaped, data.decode("utf-8", "surrogateescape"))) + '"'


def quoted_by_runtime(data: bytes, *, quotes_bytes: bool) -> str:
    """A string as tracebacks quote it (runtime/print.go, printquoted, Go 1.26 and 1.27).

    Bytes that are not UTF-8 are written as numbers with `quotes_bytes`, else as U+FFFD.
    """
    text = data.decode("utf-8", "surrogateescape")
    if not quotes_bytes:
        text = "".join("\ufffd" if ord(c) in _BYTES else c for c in text)
    return '"' + "".join(map(_escaped_by_runtime, text)) + '"'


def is_plain(data: bytes) -> bool:
    """Whether tracebacks write this label without quotes (traceback.go, Go 1.27)."""
    return all(c in _PLAIN for c in data.decode("utf-8", "surrogateescape"))


def shortened(name: str, lists: int) -> str:
    """A function's name with "[...]" for type arguments (runtime/traceback.go).

    For the one list that there may be, or for both those of a generic method and of its type: see
    TracebackRules.shortened_type_arguments. A name whose brackets don't match stays as it is.
    """
    start, end = name.find("["), name.rfind("]")
    if not lists or start < 0 or end <= start:
        return name
    inner = name[start + 1 : end]
    if lists == 1 or "[" not in inner:
        return f"{name[:start]}[...]{name[end + 1 :]}"
    depth, closes, opens = 1, -1, -1
    for at, c in enumerate(inner):
        depth += (c == "[") - (c == "]")
        if c == "[" and depth == 1:
            opens = at
            break
        if c == "]" and depth == 0:
            closes = at
        if depth < 0:
            break
    if depth != 1:
        return name
    if closes < 0:  # the brackets within are those of one argument
        return f"{name[:start]}[...]{name[end + 1 :]}"
    if opens < closes:
        return name
    return f"{name[:start]}[...]{inner[closes + 1 : opens]}[...]{name[end + 1 :]}"


@lru_cache(_MAX_CACHED)
def readable(name: str) -> str:
    """A function's name for people: with "[...]" for type arguments, whatever the version of Go.

    Go's own profiles have them whole, and so have our files. Names such as "[unknown]" and C++'s
    "operator[]" stay as they are.
    """
    start = name.find("[")
    if start <= 0:
        return name
    before, behind = name[start - 1], name[start + 1 : start + 2]
    if not (before.isalnum() or before == "_") or behind == "]":
        return name
    return shortened(name, 2)


def _escaped(c: str) -> str:
    if c in _SHORT:
        return _SHORT[c]
    return c if c.isprintable() else _number(c)


def _escaped_by_runtime(c: str) -> str:
    if c in _SHORT_IN_RUNTIME:
        return _SHORT[c]
    if c == _DELETE:
        return "\\u007f"
    return c if " " <= c <= "~" else _number(c)


def _number(c: str) -> str:
    code = ord(c)
    if code in _BYTES:
        return f"\\x{code - _BYTES.start + 0x80:02x}"
    if code < 0x20 or c == _DELETE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
