"""Reads the events that the program of traces writes: rings in memory that overwrite the oldest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.kernel import c_facts

if TYPE_CHECKING:
    import numpy.typing as npt

EVENT: Final = c_facts.struct("trace/events.h", "event")
"""An event as the kernel writes it."""


class EventRings:
    """The rings of one program: what came since the last read, and what was overwritten."""

    def __init__(self, rings: npt.NDArray[Any], events: npt.NDArray[Any], count: int) -> None:
        """`rings` and `events` are the mapped arrays; the first `count` rings are in use."""
        self._taken = rings["taken"][:count]
        self._slots = events.reshape(count, len(events) // max(1, count))
        self._read_to = [0] * count
        self._forgets = False
        self.overwritten = 0
        """Events that were gone before we read them."""
        self.whole_since_ns = 0
        """Since when no event is missing; 0 if none ever was overwritten."""

    def forget_overwritten(self) -> None:
        """Take as never written what is overwritten already: only the last events are wanted."""
        size = self._slots.shape[1]
        self._read_to = [max(0, int(taken) - size) for taken in self._taken]
        self._forgets = True

    def read(self) -> npt.NDArray[Any]:
        """The events since the last call, by time (EVENT).

        Those that a processor is just writing, and later ones of its ring, come with the next call.
        """
        parts = [self._of_ring(number) for number in range(len(self._read_to))]
        events = np.concatenate([np.zeros(0, EVENT), *parts])
        ordered: npt.NDArray[Any] = events[np.argsort(events["at_ns"], kind="stable")]
        return ordered

    def _of_ring(self, number: int) -> npt.NDArray[Any]:
        slots = self._slots[number]
        size, end = len(slots), int(self._taken[number])
        begin = self._read_to[number]
        if end - begin > size:
            self.overwritten += end - begin - size
            begin = end - size
        wanted = np.arange(begin, end)
        copied = slots[wanted % size].copy()
        is_there = copied["number"] == wanted + 1
        # What the kernel has written meanwhile may have overwritten what we copied first.
        torn = max(0, int(self._taken[number]) - size - begin)
        if torn:
            is_there[:torn] = copied["number"][:torn] == wanted[:torn] + 1
        newer = copied["number"] > wanted + 1
        self.overwritten += int(np.count_nonzero(newer))
        waiting = np.flatnonzero(~is_there & ~newer)
        if len(waiting):
            end = begin + int(waiting[0])
            copied, is_there = copied[: waiting[0]], is_there[: waiting[0]]
        self._read_to[number] = end
        events: npt.NDArray[Any] = copied[is_there]
        if begin and len(events) and self._forgets:
            self.whole_since_ns = max(self.whole_since_ns, int(events["at_ns"][0]))
        return events


NO_RINGS: Final = EventRings(np.zeros(0, [("taken", "<u8")]), np.zeros(0, EVENT), 0)
