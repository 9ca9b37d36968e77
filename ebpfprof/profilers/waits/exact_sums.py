"""The sums of the times in which every event was recorded, out of those of all windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ebpfprof.profilers.waits.rows import KnownStack
from ebpfprof.profilers.waits.window_sums import WindowSums

_NONE: Final = 0.0, 0.0

Sums = dict[KnownStack, tuple[float, float]]
"""By stack, a count and a delay (ns)."""


class ExactSums:
    """A recording begins with such a time; its end is that of the first window."""

    def __init__(self, sums: WindowSums) -> None:
        self._sums = sums
        self._known: Sums = {}
        self._before: Sums = {}
        self._goes_on = False

    def begin(self) -> None:
        """From now on every event is recorded."""
        self._before, self._goes_on = self._sums.with_more({}), True

    def end(self, more: Mapping[KnownStack, tuple[float, float]]) -> None:
        """From now on not every event is recorded; `more` is not in the sums yet."""
        self._known, self._goes_on = self.so_far(more), False

    def so_far(self, more: Mapping[KnownStack, tuple[float, float]] | None = None) -> Sums:
        """The sums of all such times."""
        found = dict(self._known)
        if self._goes_on:
            for stack, (count, ns) in self._sums.with_more(more or {}).items():
                before, known = self._before.get(stack, _NONE), found.get(stack, _NONE)
                found[stack] = known[0] + count - before[0], known[1] + ns - before[1]
        return found
