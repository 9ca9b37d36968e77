"""What belongs to keys, for many keys at once: few of them are different."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

MOST: Final = 1 << 20
"""So many keys are kept, of 16 bytes each: with more, all are forgotten."""
_LAST: Final = (1 << 63) - 1
"""Behind all keys."""


class KeyNumbers:
    """The numbers of keys that were asked for before, sorted by key."""

    def __init__(self, make: Callable[[int], int]) -> None:
        """`make` returns the number of a key, which is positive and below 2^63 - 1."""
        self._make = make
        self._forget()

    def _forget(self) -> None:
        self._keys = np.array([_LAST], np.int64)
        self._numbers = np.zeros(1, np.int64)

    def of(self, keys: Numbers) -> Numbers:
        """The number of each key."""
        if len(keys) and (keys == keys[0]).all():
            number = self._of(keys[:1])
            return np.full(len(keys), number[0], np.int64)
        return self._of(keys)

    def _of(self, keys: Numbers) -> Numbers:
        rows = np.searchsorted(self._keys, keys)
        is_new = self._keys[rows] != keys
        if is_new.any():
            new = np.unique(keys[is_new])
            if len(new) + len(self._keys) > MOST:
                self._forget()
                new = np.unique(keys)
            numbers = np.array([self._make(key) for key in new.tolist()], np.int64)
            joined = np.concatenate([self._keys, new])
            order = np.argsort(joined, kind="stable")
            self._keys = joined[order]
            self._numbers = np.concatenate([self._numbers, numbers])[order]
            rows = np.searchsorted(self._keys, keys)
        return self._numbers[rows]
