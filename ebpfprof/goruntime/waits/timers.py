"""When the channels of timers get their next value: from the timers of the scheduler's processors.

A channel knows its timer only from Go 1.23 on, and not with GODEBUG asynctimerchan=1. The timer
knows its channel, as its argument (time/sleep.go, NewTimer; time/tick.go, NewTicker). While a
goroutine waits for the channel, the timer is in the heap of a P (runtime/time.go, Go 1.19 to 1.27).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.records import record
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.globals import allp_address
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory

_MAX_PROCESSORS: Final = 4096
_MAX_TIMERS: Final = 8192
_WORD_BYTES: Final = 8


class Timer(NamedTuple):
    """A timer with a channel: when it fires next (CLOCK_MONOTONIC, ns), and its period, 0 for one
    that fires once."""

    when_ns: int
    period_ns: int


class TimerReader:
    """Reads the timers of one target."""

    def __init__(self, go: GoTarget, memory: Memory) -> None:
        self._memory, layout = memory, go.binary.layout
        address: int | None = None
        with suppress(SymbolizerError):  # then _allp is None
            address = allp_address(go.binary)
        self._allp = None if address is None else address + go.load_bias
        heap, self._stride = layout.offset("p", "timers"), _WORD_BYTES
        if "timers" in layout.structs:
            heap += layout.offset("timers", "heap")
            self._stride = layout.size("timerWhen")
        self._processor = np.dtype(
            {
                "names": ["id", "timers", "count"],
                "formats": ["<i4", "<u8", "<u8"],
                "offsets": [layout.offset("p", "id"), heap, heap + _WORD_BYTES],
                "itemsize": heap + 2 * _WORD_BYTES,
            }
        )
        # The argument is an interface: its second word is the channel.
        self._timer = record(
            layout, "timer", (("when", "when", "<i8"), ("period", "period", "<i8"))
        )
        self._argument = layout.offset("timer", "arg") + _WORD_BYTES

    def by_channel(self) -> dict[int, Timer]:
        """The pending timers by the address of their channel, or of another argument.

        Empty where there are more than 8192 timers, or if they can't be read. Raises TargetGone.
        """
        addresses = self._addresses()
        if addresses is None or not len(addresses):
            return {}
        timers = self._memory.read_records(addresses, self._timer)
        words = addresses + np.uint64(self._argument)
        channels = self._memory.read_records(words, np.dtype("<u8"))
        rows = zip(
            channels.tolist(), timers["when"].tolist(), timers["period"].tolist(), strict=True
        )
        return {at: Timer(when, max(period, 0)) for at, when, period in rows if at and when > 0}

    def pending(self) -> int | None:
        """How many timers are set, with a channel or a function; None if they can't be read.

        A timer that was stopped may be among them until its time comes. Raises TargetGone.
        """
        if self._allp is None:
            return None
        try:
            heaps = self._heaps(self._allp)
        except UnreadableMemory:  # the list moved meanwhile
            return None
        return None if heaps is None else sum(count for _, count in heaps)

    def _addresses(self) -> npt.NDArray[np.uint64] | None:
        """The addresses of all runtime.timer in the heaps; None if they can't be read."""
        if self._allp is None:
            return None
        try:
            heaps = self._heaps(self._allp)
            if heaps is None or sum(length for _, length in heaps) > _MAX_TIMERS:
                return None
            arrays = [
                np.frombuffer(self._memory.read(at, length * self._stride), np.uint64)[
                    :: self._stride // _WORD_BYTES
                ]
                for at, length in heaps
                if length
            ]
        except UnreadableMemory:  # the heaps moved meanwhile
            return None
        return np.concatenate(arrays) if arrays else np.zeros(0, np.uint64)

    def _heaps(self, allp: int) -> list[tuple[int, int]] | None:
        """Where the timers of each P are, and how many; None if these are no Ps."""
        pointer, count = np.frombuffer(self._memory.read(allp, 16), np.uint64).tolist()
        if not 0 < count <= _MAX_PROCESSORS:
            return None
        places = np.frombuffer(self._memory.read(pointer, _WORD_BYTES * count), np.uint64)
        heaps = self._memory.read_records(places, self._processor)
        if (heaps["id"] != np.arange(count)).any():
            return None
        return list(zip(heaps["timers"].tolist(), heaps["count"].tolist(), strict=True))
