"""Looks at all goroutines of a target again and again: which of them have not moved since.

A look reads the heads of all runtime.g, without a trap and without stopping the target. A goroutine
has not moved if two looks find it parked with the same g.trackingSeq, which counts modulo 256 how
often it stopped running (runtime/proc.go, casgstatus, Go 1.17 on). The time between looks is
random, so a goroutine that moves all the time passes two looks by chance once in 256 times.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.parked import ParkedScanner
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines import ParkedGoroutine
    from ebpfprof.goruntime.process import GoTarget

_INTERVAL_S: Final = 0.1
_SPREAD: Final = (0.5, 1.5)  # times the mean interval
_MAX_SHARE: Final = 0.01  # of one processor
_SEQUENCE_BITS: Final = 8


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at the time `now_ns`: an element for each runtime.g, in the order of runtime.allgs.

    `waits` is goid and trackingSeq in one number, 0 for a goroutine that is not parked. `since_ns`
    is the time of the first look that found the goroutine in this wait.
    """

    now_ns: int
    addresses: npt.NDArray[np.uint64]
    waits: npt.NDArray[np.uint64]
    since_ns: npt.NDArray[np.int64]


class GoroutineLooks(Closing):
    """The looks at one target. A context manager that closes the target's memory."""

    def __init__(self, go: GoTarget) -> None:
        """Open the target's memory. Raises TargetGone, PermissionDenied or GoTableError."""
        self._scanner = ParkedScanner(go, has_labels=False)
        self._last: _Look | None = None
        self._first_ns = 0
        self._count = 0
        self._next_s = 0.0

    @property
    def interval_ns(self) -> float:
        """The mean time between two looks; 0 before there were two."""
        if self._last is None or self._count < 2:
            return 0.0
        return (self._last.now_ns - self._first_ns) / (self._count - 1)

    def look_if_due(self) -> None:
        """Look, unless the last look was a moment ago. Raises what look() raises."""
        if time.monotonic() >= self._next_s:
            self.look()

    def look(self) -> None:
        """Look at all goroutines now. Raises TargetGone or UnreadableMemory."""
        began_s = time.monotonic()
        addresses, records, is_parked = self._scanner.heads()
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        waits = records["goid"] << np.uint64(_SEQUENCE_BITS) | records["sequence"]
        waits[~is_parked] = 0
        since_ns = np.full(len(waits), now_ns, np.int64)
        if last := self._last:
            # The runtime only appends to allgs, and never frees a runtime.g.
            both = min(len(waits), len(last.waits))
            has_stayed = (waits[:both] != 0) & (waits[:both] == last.waits[:both])
            has_stayed &= addresses[:both] == last.addresses[:both]
            since_ns[:both][has_stayed] = last.since_ns[:both][has_stayed]
        else:
            self._first_ns = now_ns
        self._last = _Look(now_ns, addresses, waits, since_ns)
        self._count += 1
        ended_s = time.monotonic()
        mean_s = max(_INTERVAL_S, (ended_s - began_s) / _MAX_SHARE)
        self._next_s = ended_s + mean_s * random.uniform(*_SPREAD)

    def standing(self, parked: Iterable[ParkedGoroutine]) -> dict[int, int]:
        """Which of these goroutines have not moved since the last look but one, or longer.

        Returns by address of the runtime.g when a look found it in this wait first
        (CLOCK_MONOTONIC, ns): a lower bound of how long it waits.
        """
        last = self._last
        if last is None:
            return {}
        index = {address: at for at, address in enumerate(last.addresses.tolist())}
        found = {}
        for each in parked:
            at = index.get(each.address)
            if at is None:
                continue
            is_same = int(last.waits[at]) == each.goid << _SEQUENCE_BITS | each.sequence
            if is_same and last.since_ns[at] < last.now_ns:
                found[each.address] = int(last.since_ns[at])
        return found

    def close(self) -> None:
        """Close the target's memory."""
        self._scanner.close()
