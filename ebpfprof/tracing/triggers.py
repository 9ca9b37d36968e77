"""Conditions that end a recording: so that its last seconds tell how it came to that."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.console.text import counted
from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.heads import HeadReader
from ebpfprof.goruntime.stack_starts import GONE
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget

_LOCKS: Final = ("sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock", "semacquire")
_MOST_SHARE: Final = 0.02  # of a processor, for looks
_EVERY_S: Final = 0.1


class Trigger(Closing):
    """Looks at the goroutines of a process until one of the conditions holds."""

    def __init__(self, go: GoTarget, *, wait_s: float | None, goroutines: int | None) -> None:
        """`wait_s`: one waits so long for a lock. `goroutines`: there are more. None: neither.

        Raises TargetGone, PermissionDenied or GoTableError.
        """
        self.why = ""
        """Which condition holds, in a sentence; "" if none does."""
        self._wait_s, self._most = wait_s, goroutines
        self._scanner = GoroutineScanner(go, has_labels=False)
        self._heads = HeadReader(go, self._scanner.memory)
        self._since_s: dict[tuple[int, int], float] = {}
        self._due_s = 0.0

    def is_met(self) -> bool:
        """Look, unless that was done just now; True once a condition holds."""
        now_s = monotonic()
        if now_s < self._due_s or self.why:
            return bool(self.why)
        with suppress(TargetGone, UnreadableMemory):
            self._look_at_number()
            self._look_at_waits(now_s)
        took_s = monotonic() - now_s
        self._due_s = now_s + max(_EVERY_S, took_s / _MOST_SHARE)
        return bool(self.why)

    def close(self) -> None:
        """Close the process's memory."""
        self._scanner.close()

    def _look_at_number(self) -> None:
        if self._most is None:
            return
        number = int(np.count_nonzero(~np.isin(self._heads.read().statuses, GONE)))
        if number > self._most:
            self.why = f"there are {counted(number, 'goroutine')}"

    def _look_at_waits(self, now_s: float) -> None:
        if self._wait_s is None:
            return
        found = {
            (each.goid, each.sequence): each.state
            for each in self._scanner.scan().goroutines
            if each.is_parked and each.state in _LOCKS
        }
        self._since_s = {wait: self._since_s.get(wait, now_s) for wait in found}
        for wait, since_s in self._since_s.items():
            if now_s - since_s >= self._wait_s:
                self.why = (
                    f"goroutine {wait[0]} has waited for {now_s - since_s:.1f} s ({found[wait]})"
                )
                return
