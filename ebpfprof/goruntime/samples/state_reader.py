"""What goroutines do in a sample, with which stack: those that moved since the sample before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.labels import LabelReader
from ebpfprof.goruntime.goroutines.seen_stacks import UNKNOWN, SeenStacks
from ebpfprof.goruntime.goroutines.stack_copies import AT_ONCE
from ebpfprof.goruntime.goroutines.stack_reader import StackReader
from ebpfprof.goruntime.goroutines.states import RUNNABLE, RUNNING, StateNames
from ebpfprof.goruntime.samples.state_sums import ENDED, GoroutineState, StateSums

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.stack_copies import Copies, StackPlaces
    from ebpfprof.goruntime.goroutines.stack_reader import ReadStack
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from ebpfprof.profile.model import Label

_MAX_ALIKE: Final = 1 << 16
_BYTE: Final = np.uint64(0xFF)
_REASON: Final = np.uint64(8)  # fields.wait_of


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
        found = self._alike.get(alike, ())
        if not found and stack.is_exact and wait_then >> 8 & 0xFF == alike.reason:
            found = walk.pcs
        self.unknown += not found
        return found

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
        alike = map(
            Alike,
            depths.tolist(),
            (waits >> _REASON & _BYTE).tolist(),
            read.g["start_pc"][rows].tolist(),
        )
        states: list[int] = []
        for row, wait, wait_then, stack, group, labels in zip(
            rows.tolist(),
            waits.tolist(),
            read.waits[rows].tolist(),
            reader.stacks(read, rows, is_exact),
            alike,
            read.g["labels"][rows].tolist(),
            strict=True,
        ):
            seen = stack.seen
            if seen:
                pcs = seen.pcs
                self._believed.keep(group, pcs)
                if seen.kept == UNKNOWN:
                    seen.kept = self._number(wait, pcs, group.start_pc)
            elif wait & 0xFF == RUNNING:
                pcs = ()
            elif not (stack.walk.pcs or is_last):
                states.append(ENDED)
                continue
            else:
                pcs = self._believed.of(group, wait, wait_then, stack)
            sema = 0
            if stack.sema_at >= 0 and self._has_semaphores:
                sema = int(reader.copier.words[row, stack.sema_at])
            is_plain = seen is not None and not sema and not (labels and self._labels)
            states.append(
                seen.kept
                if seen and is_plain
                else self._number(wait, pcs, group.start_pc, self._labels_of(labels), sema)
            )
        return np.array(states, np.int64)

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
