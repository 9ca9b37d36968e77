"""Follows sampled objects of one process: which of them are still there.

Each collection says so of the objects that were allocated before it (heap.survivors). If we check
after each collection, no object is taken for another one that got its slot later. We can't check
after each collection of a program that collects all the time: then a slot may have changed its
owner between two checks, and we count for how many objects that may be so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.heap.survivors import ALIVE, GONE, UNKNOWN
from ebpfprof.profilers.heap.gate_program import SMALL_BYTES, chance

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.heap.survivors import Survivors
    from ebpfprof.profilers.heap.gate_tables import AllocatingStack

MOST_FOLLOWED: Final = 1 << 16
_STEP: Final = 2  # sweepgen grows by that with each collection
_AT_ONCE: Final = 512
_ATTEMPTS: Final = 3
_UNENDED: Final = -1
_ROW: Final = np.dtype(
    [
        *(("object", "<u8"), ("stack", "<u8"), ("size", "<u8"), ("drawn", "<u4")),
        *(("born", "<u4"), ("seen", "<u4"), ("window", "<i4"), ("is_unsure", "?")),
    ]
)


@dataclass(frozen=True, slots=True)
class FollowedObjects:
    """What is still there, in objects by stack, of those that were followed.

    `weighted` counts each for the time that its window stands for, and `squares` adds up the
    squares of that, by window, for windows after a pause. `reported_rate`: one object in this many
    bytes was followed. `unsure` objects may be gone: `missed` collections came too fast.
    `collections` says how many there were.
    """

    weighted: dict[AllocatingStack, float]
    squares: dict[AllocatingStack, float]
    reported_rate: int
    unsure: int
    missed: int
    collections: int
    followed: int


class Followed:
    """The objects of one process. One thread at a time may use it."""

    def __init__(self, survivors: Survivors) -> None:
        """Raises TargetGone or UnreadableMemory."""
        self._survivors = survivors
        self._rows = np.zeros(0, _ROW)
        self._weights: list[float] = []
        self._generation = survivors.generation()
        self.missed = 0
        self.collections = 0

    def begin(self) -> None:
        """Count collections from now on, unless objects are followed already."""
        if not len(self._rows):
            self._generation = self._survivors.generation()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, births: npt.NDArray[Any]) -> None:
        """Follow new objects, oldest first, as GateProgram.births() returns them."""
        rows = np.zeros(len(births), _ROW)
        for to, of in (("object", "object"), ("stack", "stack"), ("size", "size_bytes")):
            rows[to] = births[of]
        rows["drawn"] = births["drawn"]
        rows["born"] = rows["seen"] = births["sweepgen"]
        rows["window"] = _UNENDED
        both = np.concatenate([self._rows, rows])
        # The newest at each address: its slot was free, so what was there before is gone.
        _, last = np.unique(both["object"][::-1], return_index=True)
        self._rows = both[np.sort(len(both) - 1 - last)]

    def note_window(self, weight: float) -> None:
        """A window has ended: each object since the last one stands for that many."""
        self._rows["window"][self._rows["window"] == _UNENDED] = len(self._weights)
        self._weights.append(weight)

    def thin(self, rate_bytes: int) -> None:
        """Follow only those that a sampling of one in that many bytes has."""
        sizes, which = np.unique(self._rows["size"], return_inverse=True)
        limits = np.array([2.0**32 * chance(int(size), rate_bytes) for size in sizes])
        is_kept = self._rows["drawn"] < limits[which]
        self._rows = self._rows[is_kept | (self._rows["size"] > SMALL_BYTES)]

    def check(self) -> None:
        """Drop those that the latest collection has found gone. Raises TargetGone."""
        generation = self._survivors.generation()
        passed = (generation - self._generation) % (1 << 32) // _STEP
        self._generation = generation
        self.collections += passed
        self.missed += max(0, passed - 1)
        rows = self._rows
        behind = (np.uint32(generation) - rows["seen"]).astype(np.uint32)
        due = np.flatnonzero((behind >= _STEP) & (behind < 1 << 31))
        if not len(due):
            return
        answers = np.full(len(due), UNKNOWN, np.uint8)
        for first in range(0, len(due), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            answers[part] = self._answers(rows[due[part]])
        rows["is_unsure"][due[(answers == ALIVE) & (behind[due] > _STEP)]] = True
        rows["seen"][due[answers == ALIVE]] = generation
        is_kept = np.ones(len(rows), np.bool_)
        is_kept[due[answers == GONE]] = False
        self._rows = rows[is_kept]

    def _answers(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """What a collection says; UNKNOWN where others follow too fast.

        Bits that were read are of the collection that swept the span, also if one more ends
        meanwhile: the runtime uses their memory again only after the next (runtime/mheap.go,
        nextMarkBitsArenaEpoch, Go 1.19 to 1.27).
        """
        for _ in range(_ATTEMPTS):
            before = self._survivors.generation()
            answers = self._survivors.ask(rows["object"], rows["size"], before)
            if (self._survivors.generation() - before) % (1 << 32) <= _STEP:
                return answers
        return np.full(len(rows), UNKNOWN, np.uint8)

    def found(
        self, reported_rate: int, stack_of: Callable[[int], AllocatingStack | None]
    ) -> FollowedObjects:
        """What is still there: as of the latest collection, or all if there was none.

        As in Go's own profile, objects count that a collection has found alive. Those of the last
        moment would be many: each stands for the pause before its window, too. `stack_of` finds
        the stack by its key; objects without one are left out.
        """
        by_window: dict[AllocatingStack, Counter[int]] = defaultdict(Counter)
        rows = self._rows
        if self.collections:
            rows = rows[rows["seen"] != rows["born"]]
        keys = zip(rows["stack"].tolist(), rows["window"].tolist(), strict=True)
        for (key, window), count in Counter(keys).items():
            if stack := stack_of(key):
                by_window[stack][window] += count
        weighted, squares = {}, {}
        for stack, counts in by_window.items():
            weights = [(self._weight(window), count) for window, count in counts.items()]
            weighted[stack] = sum(weight * count for weight, count in weights)
            squares[stack] = sum((weight * count) ** 2 for weight, count in weights if weight > 1)
        return FollowedObjects(
            weighted,
            squares,
            reported_rate,
            int(rows["is_unsure"].sum()),
            self.missed,
            self.collections,
            len(rows),
        )

    def _weight(self, window: int) -> float:
        return self._weights[window] if window >= 0 else 1.0
