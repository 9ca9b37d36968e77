"""Goroutines that can never continue: nothing that runs refers to what they wait for.

As Go's own goroutineleak profile defines them (runtime/mgc.go, findGoroutineLeaks, Go 1.26 and
1.27), without a collection, and in all versions: a goroutine that waits for channels, or for a lock
or another semaphore, is a leak if these are reached only from goroutines like it. One that waits
for a nil channel, or in a select without cases, always is.

Every word of a stack counts, also of variables that are dead: so some leaks are not found. The
program runs on meanwhile: so a leak must be found in two scans, as the same wait.

For which semaphore a goroutine waits, runtime.g says from Go 1.26 on. In earlier versions those
that wait for locks count as if they could continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.references.heap import Heap

    Numbers = npt.NDArray[np.int64]

_CHANNELS: Final = ("ChanReceive", "ChanSend", "Select")
_SEMAPHORES: Final = (
    *("SyncCondWait", "SyncMutexLock", "SyncRWMutexRLock", "SyncRWMutexLock", "SyncWaitGroupWait"),
)
_NEVER: Final = ("ChanReceiveNilChan", "ChanSendNilChan", "SelectNoCases")
_MAX_CASES: Final = 1 << 10  # of a select


@dataclass(frozen=True, slots=True)
class Blocked:
    """A goroutine that may be a leak: it can continue if one of the slots `waits_for` is reached.

    -1 is what is not on the heap, which can always be reached; a nil channel is none. `own` are the
    slots of its runtime.g and runtime.sudogs.
    """

    goroutine: Goroutine
    waits_for: Numbers
    own: Numbers


class BlockedReader:
    """Finds the goroutines of a heap that may be leaks."""

    def __init__(self, go: GoTarget, heap: Heap) -> None:
        self._heap, self._slots = heap, heap.slots
        self._memory, layout = go.target.memory, go.binary.layout
        self._sudog = record(
            layout,
            "sudog",
            (
                *(("g", "g", "<u8"), ("c", "c", "<u8")),
                ("elem", "elem", "<u8"),
                ("next", "waitlink", "<u8"),
            ),
        )
        texts, names = layout.wait_reason_texts, layout.wait_reasons
        self._channels, self._semaphores, self._never = (
            frozenset(texts[name] for name in group if name in names)
            for group in (_CHANNELS, _SEMAPHORES, _NEVER)
        )

    def read(self) -> Iterator[Blocked]:
        """The goroutines; none if not the whole heap can be read. Raises TargetGone."""
        for goroutine in self._heap.goroutines if self._heap.is_whole else ():
            if self._heap.waits_before.get(goroutine.address) != goroutine.wait:
                continue  # it moved meanwhile
            objects: list[int] = []
            sudogs: list[int] = []
            if goroutine.state not in self._never:
                on_channels = goroutine.state in self._channels
                if not on_channels and goroutine.state not in self._semaphores:
                    continue
                waits = self._waits(goroutine, "c" if on_channels else "elem")
                if waits is None:
                    continue
                objects, sudogs = waits
            own = np.unique(self._slots_at([goroutine.address, *sudogs]))
            yield Blocked(goroutine, self._slots_at(objects), own[own >= 0])

    def _slots_at(self, addresses: list[int]) -> Numbers:
        slots, _ = self._slots.find(np.array(addresses, np.uint64))
        return slots

    def _waits(self, goroutine: Goroutine, field: str) -> tuple[list[int], list[int]] | None:
        """What a goroutine waits for, and its sudogs; None if that can't be known."""
        sudogs: list[int] = []
        objects: list[int] = []
        address = goroutine.words.waiting
        while address and len(sudogs) < _MAX_CASES:
            row = self._memory.read_records(np.array([address], np.uint64), self._sudog)[0]
            if int(row["g"]) != goroutine.address or not row[field]:
                return None  # it moved meanwhile
            sudogs.append(address)
            objects.append(int(row[field]))
            address = int(row["next"])
        return (objects, sudogs) if sudogs and not address else None
