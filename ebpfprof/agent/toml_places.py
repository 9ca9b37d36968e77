"""Where in a TOML file a value stands: the parser of Python's library does not tell."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line (from 1 on) on which the value with this path of keys and indices begins.

    `text` is valid TOML that has the value. The first lines of it are parsed again: where so few
    are TOML by themselves and have the value already, it begins on the last of them. A value may
    span several lines, of which the first are no TOML alone.
    """
    lines = text.splitlines(keepends=True)
    low, high = 1, len(lines)
    while low < high:
        middle = (low + high) // 2
        if _has(lines, middle, path):
            high = middle
        else:
            low = middle + 1
    return low


def _has(lines: list[str], count: int, path: Sequence[str | int]) -> bool:
    """Whether the first `count` lines, and those that they take to be TOML, have the value."""
    for end in range(count, len(lines) + 1):
        try:
            tables = tomllib.loads("".join(lines[:end]))
        except (tomllib.TOMLDecodeError, RecursionError, ValueError):
            continue
        return _at(tables, path)
    return True


def _at(tables: Any, path: Sequence[str | int]) -> bool:  # noqa: ANN401 - any value of TOML
    for key in path:
        try:
            tables = tables[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
