"""What is remembered from one window of a process to the next, besides its sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ebpfprof.goruntime.parked import Wait
from ebpfprof.profilers.waits.rows import Hold
from ebpfprof.profilers.waits.window_sums import OngoingWait


class WindowMemory:
    """How long locks were held, and since when the waits last that went on beyond a window."""

    def __init__(self) -> None:
        self.holds: dict[int, Hold] = {}
        """By semaphore, as far as windows that have ended saw it."""
        self._since: dict[Wait, int] = {}

    def holds_with(self, seen: Mapping[int, Hold]) -> dict[int, Hold]:
        """The holds, with those of one more window."""
        found = dict(self.holds)
        for sema, more in seen.items():
            hold = found.get(sema, Hold())
            found[sema] = Hold(hold.count + more.count, hold.held_ns + more.held_ns)
        return found

    def remember(self, ongoing: Sequence[OngoingWait], begin_ns: int, end_ns: int) -> None:
        """Take note of when the waits that last began; of one from before the window, since when
        it was known.
        """
        known = self._since
        self._since = {
            each.wait: min(known.get(each.wait, end_ns), max(begin_ns, end_ns - each.ns))
            for each in ongoing
            if each.wait
        }

    def since(self, wait: Wait, *, otherwise_ns: int) -> int:
        """When a wait began or was seen first (CLOCK_MONOTONIC, ns), if that is known."""
        return self._since.get(wait, otherwise_ns)
