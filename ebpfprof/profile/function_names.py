"""Names of functions as rules compare them: without what differs between builds and versions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ebpfprof.profile.model import Frame

_MAX_CACHED: Final = 1 << 16
_MAX_NAME: Final = 1024
_UNKNOWN: Final = ""

_BRACKETS = re.compile(r"[\[\]]")
# Functions that the compiler makes for `go f(x)` and for method values.
_WRAPPER = re.compile(r"(?:\.(?:go|defer)wrap\d+|·d?wrap·\d+|-fm)$")
_VERSION = re.compile(r"(?<=/)(.+?)(?:/|\.|%2e)v\d+(?=[./])")
CLOSURE: Final = re.compile(r"(?:\.\d+)?\.func\d+(?P<inner>.*)$")  # in "init.0", too
"""Matches the end of a closure's name, from its enclosing function on."""


@lru_cache(_MAX_CACHED)
def plain(function: str) -> str | None:
    """The name without type arguments and without the module's version; None for a wrapper.

    "" for a name that is too long for one of Go's.
    """
    if _WRAPPER.search(function):
        return None
    name = _without_type_arguments(function) if "[" in function else function
    return _VERSION.sub(r"\1", name) if len(name) <= _MAX_NAME else _UNKNOWN


def plain_names(frames: Iterable[Frame]) -> list[str]:
    """The plain names of all frames except wrappers, in their order."""
    return [name for frame in frames if (name := plain(frame.function)) is not None]


@lru_cache(_MAX_CACHED)
def owner(name: str) -> str:
    """For a closure, the name of the enclosing function and ".func"; any other name unchanged."""
    closure = CLOSURE.search(name)
    return f"{name[: closure.start()]}.func" if closure else name


@lru_cache(_MAX_CACHED)
def package(name: str) -> str:
    """The package of a function: "net/http.(*conn).serve" is in "net/http"."""
    slash = name.rfind("/", 0, name.find("(") if "(" in name else len(name))
    dot = name.find(".", slash + 1)
    return name if dot < 0 else name[:dot]


def _without_type_arguments(name: str) -> str:
    depth, start, kept = 0, 0, []
    for bracket in _BRACKETS.finditer(name):
        if depth == 0:
            kept.append(name[start : bracket.start()])
        depth = max(depth + (1 if bracket[0] == "[" else -1), 0)
        start = bracket.end()
    return "".join(kept) + (name[start:] if depth == 0 else "")
