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

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.records import record
from ebpfprof.profile.references import LeakedGoroutines

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.references.cuts import Cuts
    from ebpfprof.goruntime.references.scan import Scan

    Numbers = npt.NDArray[np.int64]

_CHANNELS: Final = ("ChanReceive", "ChanSend", "Select")
_SEMAPHORES: Final = (
    *("SyncCondWait", "SyncMutexLock", "SyncRWMutexRLock", "SyncRWMutexLock", "SyncWaitGroupWait"),
)
_NEVER: Final = ("ChanReceiveNilChan", "ChanSendNilChan", "SelectNoCases")
_MAX_CASES: Final = 1 << 10  # of a select
_MAX_ROUNDS: Final = 1 << 10
_MAIN: Final = 1


class LeakFinder:
    """Finds the goroutines of one scan that can never continue."""

    def __init__(self, go: GoTarget, scan: Scan, cuts: Callable[[], Cuts]) -> None:
        """`cuts` returns the searches in the scan's graph; it is called if they are needed."""
        self._scan, self._slots, self._make_cuts = scan, scan.slots, cuts
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

    def find(self) -> LeakedGoroutines:
        """The goroutines, and what they keep; none if not all could be read. Raises TargetGone."""
        blocked, sudogs = self._blocked() if self._scan.is_whole else ({}, np.zeros(0, np.int64))
        if not blocked:
            return LeakedGoroutines()
        cuts = self._make_cuts()
        allowed = np.ones(self._slots.count, np.bool_)
        places = {address: self._slot(address) for address in blocked}
        held = np.array([slot for slot in places.values() if slot >= 0], np.int64)
        allowed[held] = False
        allowed[sudogs] = False
        words = self._scan.words
        is_blocked = np.isin(words.goroutines, np.array(list(blocked), np.uint64))
        seeds = np.concatenate(
            [
                words.slots[~is_blocked].astype(np.int64),
                self._scan.scheduler,
                self._scan.kept_by_finalizers,
            ]
        )
        reached = np.zeros(self._slots.count, np.bool_)
        for _ in range(_MAX_ROUNDS):
            seeds = np.unique(seeds[allowed[seeds]])
            reached |= cuts.below(seeds, allowed)
            allowed &= ~reached  # what was searched need not be searched again
            able = [
                address
                for address, waits_for in blocked.items()
                if any(slot < 0 or reached[slot] for slot in waits_for)
            ]
            if not able:
                break
            is_able = np.isin(words.goroutines, np.array(able, np.uint64))
            own = np.array([places[address] for address in able], np.int64)
            own = own[own >= 0]
            allowed[own] = True
            seeds = np.concatenate([words.slots[is_able].astype(np.int64), own])
            for address in able:
                del blocked[address]
        leaked = [
            goroutine
            for goroutine in self._scan.goroutines
            if goroutine.address in blocked and goroutine.goid != _MAIN
        ]
        return LeakedGoroutines(
            tuple(goroutine.goid for goroutine in leaked),
            frozenset(goroutine.wait for goroutine in leaked),
            *self._kept(cuts, reached, leaked),
        )

    def _kept(
        self, cuts: Cuts, reached: npt.NDArray[np.bool_], leaked: list[Goroutine]
    ) -> tuple[int, int]:
        """How much only these goroutines keep."""
        addresses = [goroutine.address for goroutine in leaked]
        is_theirs = np.isin(self._scan.words.goroutines, np.array(addresses, np.uint64))
        seeds = np.unique(self._scan.words.slots[is_theirs].astype(np.int64))
        kept = np.flatnonzero(cuts.below(seeds[~reached[seeds]], ~reached))
        return len(kept), int(self._slots.bytes_of(kept).sum())

    def _slot(self, address: int) -> int:
        slots, _ = self._slots.find(np.array([address], np.uint64))
        return int(slots[0])

    def _blocked(self) -> tuple[dict[int, list[int]], Numbers]:
        """Goroutines that may be leaks, by address, with what they wait for; and their sudogs.

        These are slots; -1 for what is not on the heap, which can always be reached. Nil channels
        are none.
        """
        blocked: dict[int, list[int]] = {}
        sudogs: list[int] = []
        for goroutine in self._scan.goroutines:
            if self._scan.waits_before.get(goroutine.address) != goroutine.wait:
                continue  # it moved while the heap was read
            if goroutine.state in self._never:
                blocked[goroutine.address] = []
                continue
            on_channels = goroutine.state in self._channels
            if not on_channels and goroutine.state not in self._semaphores:
                continue
            waits = self._waits(goroutine, "c" if on_channels else "elem")
            if waits is not None:
                blocked[goroutine.address] = [self._slot(address) for address in waits[0]]
                sudogs += [slot for slot in map(self._slot, waits[1]) if slot >= 0]
        return blocked, np.array(sorted(set(sudogs)), np.int64)

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
