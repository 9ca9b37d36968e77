"""Answers that are the same for all processes of a program, found once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from symbolizer.go.binary import GoBinary

Found = TypeVar("Found")


def once(find: Callable[[GoBinary], Found]) -> Callable[[GoBinary], Found]:
    """Have `find` search each binary once. An error is not kept."""
    known: WeakKeyDictionary[GoBinary, Found] = WeakKeyDictionary()

    @wraps(find)
    def found(binary: GoBinary) -> Found:
        if binary not in known:
            known[binary] = find(binary)
        return known[binary]

    return found
