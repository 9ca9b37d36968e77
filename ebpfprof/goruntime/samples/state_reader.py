"""What goroutines do in a sample, with which stack: those that moved since the sample before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.fields import REASON_SHIFT
from ebpfprof.goruntime.goroutines.labels import LabelReader
from ebpfprof.goruntime.goroutines.seen_stacks import UNKNOWN, SeenStacks
from ebpfprof.goruntime.goroutines.stack_copies import AT_ONCE
from ebpfprof.goruntime.goroutines.stack_reader import StackReader, are_many
from ebpfprof.goruntime.goroutines.states import RUNNABLE, RUNNING, StateNames
from ebpfprof.goruntime.samples.state_sums import ENDED, GoroutineState, StateSums

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.seen_stacks import SeenStack
    from ebpfprof.goruntime.goroutines.stack_copies import Copies, StackPlaces
    from ebpfprof.goruntime.goroutines.stack_reader import ReadStack
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from ebpfprof.profile.model import Label

_MAX_ALIKE: Final = 1 << 16
_BYTE: Final = np.uint64(0xFF)


class Alike(NamedTuple):
    """Goroutines that began alike and wait alike, as deep in the stack, most likely wait there."""

    depth_bytes: int
    reason: int
    start_pc: int


class BelievedStacks:
    """Decides which stacks of one target are believed: goroutines continue while we read."""

    def __init__(self) -> None:
        self._whole: set[tuple[int, ...]] = set()  # stacks that were read while nothing changed
        self._pcs: dict[int, int] = {}  # itself: one object for all stacks that have it
        self._alike: dict[Alike, tuple[int, ...]] = {}
        self.torn = 0
        """Stacks read a moment too late, of goroutines that had moved on; most are right."""
        self.unknown = 0
        """Goroutines without a stack: they had moved on, to an unknown place."""

    def of(self, alike: Alike, wait: int, wait_then: int, stack: ReadStack) -> tuple[int, ...]:
        """The stack of a goroutine that had `wait` at its first read, `wait_then` at this one."""
        walk = stack.walk
        if stack.is_exact and wait_then == wait:
            pcs = self._shared(walk.pcs)
            if walk.is_whole and len(pcs) > 1:
                if len(self._whole) >= _MAX_ALIKE:
                    self._whole.clear()
                self._whole.add(pcs)
            self.keep(alike, pcs)
            return pcs
        # It moved on before or while we read its stack: some frames may be those of other calls,
        # even if the outermost function is right. Believe it if it is a stack that exists.
        self.torn += 1
        is_new = len(walk.pcs) == 1 and wait & 0xFF == RUNNABLE  # it has not begun to run
        if stack.is_there and walk.is_whole and (is_new or walk.pcs in self._whole):
            return self._shared(walk.pcs)
        known = self._alike.get(alike, ())
        if not known and stack.is_exact and wait_then >> 8 & 0xFF == alike.reason:
            known = walk.pcs
        self.unknown += not known
        return known

    def keep(self, alike: Alike, pcs: tuple[int, ...]) -> None:
        """Note the stack of a goroutine, for others like it whose stack can't be read."""
        if len(self._alike) >= _MAX_ALIKE:
            self._alike.clear()
        self._alike[alike] = pcs

    def _shared(self, pcs: tuple[int, ...]) -> tuple[int, ...]:
        """The same, with one object for each address: stacks have most of them in common."""
        if len(self._pcs) >= _MAX_ALIKE:
            self._pcs.clear()
        return tuple(self._pcs.setdefault(pc, pc) for pc in pcs)


class _Rows(NamedTuple):
    """Goroutines of a read: their rows, and their waits and depths at the first read of each."""

    reader: StackReader
    rows: npt.NDArray[np.int64]
    waits: npt.NDArray[np.uint64]
    depths: npt.NDArray[np.uint64]
    start_pcs: npt.NDArray[np.uint64]
    labels: npt.NDArray[np.uint64]

    def wait(self, row: int) -> int:
        return int(self.waits[row])

    def alike(self, row: int) -> Alike:
        reason = self.wait(row) >> REASON_SHIFT & 0xFF
        return Alike(int(self.depths[row]), reason, int(self.start_pcs[row]))

    def word(self, row: int, number: int) -> int:
        """A word of the stack."""
        return int(self.reader.copier.words[self.rows[row], number])


class StateReader:
    """Finds the states of one target's goroutines, and their numbers in `sums`."""

    def __init__(
        self,
        go: GoTarget,
        memory: Memory,
        sums: StateSums,
        *,
        has_labels: bool,
        has_semaphores: bool,
    ) -> None:
        """Tell states apart by labels and semaphores if asked for. Raises GoTableError."""
        self._sums, seen = sums, SeenStacks()
        self._quick = StackReader(go, memory, seen=seen)
        self._stacks = StackReader(go, memory, seen=seen)
        self._labels = LabelReader(memory, go.binary.layout) if has_labels else None
        self._names = StateNames(go.binary.layout)
        self._has_semaphores = has_semaphores
        self._believed = BelievedStacks()
        self.unlabelled = 0
        """Goroutines whose labels could not be read."""

    @property
    def torn(self) -> int:
        """See BelievedStacks."""
        return self._believed.torn

    @property
    def unknown(self) -> int:
        """See BelievedStacks."""
        return self._believed.unknown

    def plan(self, places: StackPlaces) -> None:
        """Prepare the next read_movers(): goroutines that are likely to move, AT_ONCE at most."""
        self._quick.copier.plan(places)

    def read_movers(self) -> Copies:
        """Read the goroutines of the plan, with their stacks. Raises TargetGone."""
        self._quick.begin()
        return self._quick.copier.read()

    def of_movers(
        self, movers: Copies, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which of these rows of read_movers() have a state, and the numbers of these states.

        The others were not where they were expected: of() reads them.
        """
        runs = movers.waits[rows] & _BYTE == RUNNING
        rows = rows[runs | movers.is_there[rows]]
        depths = movers.g["hi"][rows] - movers.g["sp"][rows]
        states = self._states(self._quick, movers, rows, movers.waits[rows], depths, is_last=False)
        has_state = states != ENDED
        return rows[has_state], states[has_state]

    def of(self, places: StackPlaces, waits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The numbers of the states of goroutines that were at `places`, with `waits`."""
        states = [np.zeros(0, np.int64)]
        for begin in range(0, len(waits), AT_ONCE):
            part = slice(begin, begin + AT_ONCE)
            self._stacks.begin()
            self._stacks.copier.plan(places.part(part))
            read, asked = self._stacks.copier.read(), waits[part]
            depths = places.his[part] - places.sps[part]
            rows = np.arange(len(asked))
            states.append(self._states(self._stacks, read, rows, asked, depths, is_last=True))
        return np.concatenate(states)

    def _states(
        self,
        reader: StackReader,
        read: Copies,
        rows: npt.NDArray[np.int64],
        waits: npt.NDArray[np.uint64],
        depths: npt.NDArray[np.uint64],
        *,
        is_last: bool,
    ) -> npt.NDArray[np.int64]:
        """The states of the goroutines in these rows, which had `waits` and `depths` at first.

        ENDED for those without a stack unless this `is_last`.
        """
        is_exact = read.is_exact[rows] & (read.waits[rows] == waits)
        seen = reader.seen(read, rows, is_exact)
        start_pcs, labels = read.g["start_pc"][rows], read.g["labels"][rows]
        here = _Rows(reader, rows, waits, depths, start_pcs, labels)
        for stack, row in {stack: row for row, stack in enumerate(seen) if stack}.items():
            alike = here.alike(row)
            self._believed.keep(alike, stack.pcs)
            if stack.kept == UNKNOWN:
                stack.kept = self._number(here.wait(row), stack.pcs, alike.start_pc)
        states = [stack.kept if stack else ENDED for stack in seen]
        if self._labels or self._has_semaphores:
            for row, known in enumerate(seen):
                if known and self._has_own(here, row, known):
                    states[row] = self._own(here, row, known.pcs, known.sema_at)
        left = np.flatnonzero([stack is None for stack in seen])
        walked = reader.walked(read, rows[left], is_exact[left], learns=are_many(rows))
        for row, copied in zip(left.tolist(), walked, strict=True):
            wait = here.wait(row)
            if wait & 0xFF == RUNNING:
                pcs: tuple[int, ...] = ()
            elif copied.walk.pcs or is_last:
                pcs = self._believed.of(here.alike(row), wait, int(read.waits[rows[row]]), copied)
            else:
                continue
            states[row] = self._own(here, row, pcs, copied.sema_at)
        return np.array(states, np.int64)

    def _has_own(self, here: _Rows, row: int, stack: SeenStack) -> bool:
        """Whether the goroutine may have labels or a semaphore that others with its stack lack."""
        has_labels = self._labels is not None and here.labels[row] != 0
        return bool(has_labels) or (self._has_semaphores and stack.sema_at >= 0)

    def _own(self, here: _Rows, row: int, pcs: tuple[int, ...], sema_at: int) -> int:
        """The number of the state with the goroutine's own labels and semaphore."""
        labels = self._labels_of(int(here.labels[row]))
        sema = here.word(row, sema_at) if sema_at >= 0 and self._has_semaphores else 0
        return self._number(here.wait(row), pcs, here.alike(row).start_pc, labels, sema)

    def _number(
        self,
        wait: int,
        pcs: tuple[int, ...],
        start_pc: int,
        labels: tuple[Label, ...] | None = (),
        sema: int = 0,
    ) -> int:
        word = self._names.of(wait & 0xFF, wait >> 8 & 0xFF)
        return self._sums.number_of(GoroutineState(word, pcs, start_pc, labels, sema))

    def _labels_of(self, address: int) -> tuple[Label, ...] | None:
        if self._labels is None:
            return ()
        labels = self._labels.read_if_there(address)
        self.unlabelled += labels is None
        return labels
