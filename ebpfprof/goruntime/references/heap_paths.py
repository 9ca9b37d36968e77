"""The paths to all objects of a heap, and the goroutines that can never continue: by one walk.

Roots come one kind after the other: what a variable keeps does not belong to a goroutine. A
goroutine that is blocked comes once what it waits for was reached. Those that remain at the end are
leaks; what is reached from them then, only they keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.references.heap import SCHEDULER
from ebpfprof.goruntime.references.leaks import BlockedReader
from ebpfprof.goruntime.references.object_types import UNKNOWN
from ebpfprof.goruntime.references.roots import RootKind
from ebpfprof.goruntime.references.walk import USUAL, HeapWalk, WalkLimits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.references.heap import Heap
    from ebpfprof.goruntime.references.leaks import Blocked

    Numbers = npt.NDArray[np.int64]

_MAIN: Final = 1
"""The main goroutine is no leak: many programs leave all work to others, and wait for ever in it.
Go leaves it out if it does so in `select {}` (Go 1.27, runtime/mgc.go, findGoroutineLeaks)."""


@dataclass(frozen=True, slots=True)
class Leaked:
    """Goroutines that can never continue, and what only they keep (bytes)."""

    goroutines: tuple[Goroutine, ...]
    objects: int
    used: int


class HeapPaths:
    """What was reached from where.

    `walk` has the sums by node of its tree, in which the first nodes are the heap's roots, in their
    order. `leaked` are the goroutines that can never continue, as far as one walk shows.
    """

    def __init__(self, go: GoTarget, heap: Heap, limits: WalkLimits = USUAL) -> None:
        """Read all objects. Raises TargetGone or UnreadableMemory."""
        self._heap = heap
        self.walk = HeapWalk(heap, limits)
        self._nodes = [
            self.walk.tree.root(root.name, kind)
            for root, kind in zip(heap.roots, heap.root_types, strict=True)
        ]
        self._blocked = list(BlockedReader(go, heap).read())
        self._owners = heap.words.goroutines
        self._is_blocked = self._words_of(self._blocked)
        self._scheduler = self.walk.tree.root(SCHEDULER, UNKNOWN)
        self.leaked = self._follow()

    def _words_of(self, blocked: Sequence[Blocked]) -> npt.NDArray[np.bool_]:
        """Which of the roots' words are on these goroutines' stacks."""
        addresses = np.array([one.goroutine.address for one in blocked], np.uint64)
        return np.isin(self._owners, addresses)

    def _follow(self) -> Leaked:
        walk, heap = self.walk, self._heap
        # Many objects lead to the scheduler's: a timer to its processor, that to its thread.
        for slots, shape in heap.scheduler:
            walk.reserve(slots, self._scheduler, shape)
        self._barred = walk.bar(_joined(one.own for one in self._blocked))
        kinds = np.array([root.kind for root in heap.roots])[heap.words.roots]
        for kind in RootKind:
            if kind is RootKind.RUNTIME:
                released = self._release()
                barred = _joined(one.own for one in self._blocked)
                for slots, shape in heap.scheduler:
                    free = slots[~np.isin(slots, barred)]
                    walk.below(free, self._scheduler, shape)
                self._unbar(released)
            self._add((kinds == kind) & ~self._is_blocked)
            if kind is RootKind.FINALIZER and len(heap.finalized):
                number = next(i for i, root in enumerate(heap.roots) if root.kind is kind)
                walk.below(heap.finalized, self._nodes[number], UNKNOWN)
        while released := self._release():
            self._unbar(released)
        return self._leaked()

    def _add(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Reach what these words of roots lead to."""
        self.walk.add(self._heap.words, np.flatnonzero(chosen), self._nodes, self._heap.root_types)

    def _release(self) -> list[Blocked]:
        """Add the stacks of blocked goroutines that can continue after all; returns these."""
        released: list[Blocked] = []
        while self._blocked:
            counts = [len(one.waits_for) for one in self._blocked]
            slots = _joined(one.waits_for for one in self._blocked)
            is_reached = (slots < 0) | self.walk.are_reached(np.maximum(slots, 0))
            able = {*np.repeat(np.arange(len(counts)), counts)[is_reached].tolist()}
            if not able:
                break
            now = [one for number, one in enumerate(self._blocked) if number in able]
            self._blocked = [one for number, one in enumerate(self._blocked) if number not in able]
            self._add(self._words_of(now))
            released += now
        return released

    def _unbar(self, goroutines: Sequence[Blocked]) -> None:
        """Reach what the runtime has of these goroutines."""
        own = _joined(one.own for one in goroutines)
        is_barred = np.isin(own, self._barred)
        self.walk.unbar(own[is_barred])
        self.walk.below(own[~is_barred], self._scheduler, self._heap.scheduler[0][1])

    def _leaked(self) -> Leaked:
        """The goroutines that remain, and what only they keep; they are added now."""
        waits = self._heap.waits()
        is_sure = [
            one.goroutine.goid != _MAIN and waits.get(one.goroutine.address) == one.goroutine.wait
            for one in self._blocked
        ]
        leaked = [one for one, sure in zip(self._blocked, is_sure, strict=True) if sure]
        others = [one for one, sure in zip(self._blocked, is_sure, strict=True) if not sure]
        self._add(self._words_of(others))
        objects, used = self.walk.total()
        self._add(self._words_of(leaked))
        objects_now, used_now = self.walk.total()
        self._unbar(self._blocked)
        goroutines = tuple(one.goroutine for one in leaked)
        return Leaked(goroutines, objects_now - objects, used_now - used)


def _joined(slots: Iterable[Numbers]) -> Numbers:
    """The slots of several arrays."""
    return np.concatenate([np.zeros(0, np.int64), *slots])
