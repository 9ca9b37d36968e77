"""What goroutines do at a look, and with which stack: those that moved since the look before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.labels import LabelReader
from ebpfprof.goruntime.goroutines.quick_stacks import AT_ONCE, QuickStackReader
from ebpfprof.goruntime.goroutines.seen_stacks import UNKNOWN, SeenStack, SeenStacks
from ebpfprof.goruntime.goroutines.stack_starts import RUNNABLE, RUNNING, StateNames
from ebpfprof.goruntime.samples.state_sums import ENDED, GoroutineState, StateSums

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.quick_stacks import QuickHeads, QuickStack, StackPlaces
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from ebpfprof.profile.model import Label

_MAX_ALIKE: Final = 1 << 16
_FEW: Final = 16  # for so few, numpy's calls take longer than walks
_BYTE: Final = np.uint64(0xFF)
_REASON: Final = np.uint64(8)  # Heads.waits


class Alike(NamedTuple):
    """Goroutines that began alike and wait alike, as deep in the stack, most likely wait there."""

    depth_bytes: int
    reason: int
    start_pc: int


class BelievedStacks:
    """Decides which stacks of one target are believed: goroutines go on while we read."""

    def __init__(self) -> None:
        self._whole: set[tuple[int, ...]] = set()  # stacks that were read while nothing changed
        self._pcs: dict[int, int] = {}  # itself: one object for all stacks that have it
        self._alike: dict[Alike, tuple[int, ...]] = {}
        self.torn = 0
        """Stacks read a moment too late, of goroutines that had moved on; most are right."""
        self.unknown = 0
        """Goroutines without a stack: they had moved on, to an unknown place."""

    def of(self, alike: Alike, wait: int, wait_then: int, stack: QuickStack) -> tuple[int, ...]:
        """The stack of a goroutine that had `wait` at its first look, `wait_then` at this one."""
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
        self._sums = sums
        self._quick = QuickStackReader(go, memory)
        self._stacks = QuickStackReader(go, memory)
        self._labels = LabelReader(memory, go.binary.layout) if has_labels else None
        self._names = StateNames(go.binary.layout)
        self._has_semaphores = has_semaphores
        self._seen = SeenStacks()
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
        self._quick.plan(places)

    def read_movers(self) -> QuickHeads:
        """Read the goroutines of the plan, with their stacks. Raises TargetGone."""
        return self._quick.read()

    def of_movers(
        self, movers: QuickHeads, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which of these rows of read_movers() have a state, and the numbers of these states.

        The others were not where they were expected: of() reads them.
        """
        runs = movers.waits[rows] & _BYTE == RUNNING
        rows = rows[runs | movers.is_there[rows]]
        depths = movers.his[rows] - movers.sps[rows]
        states = self._states(self._quick, movers, rows, movers.waits[rows], depths, is_last=False)
        has_state = states != ENDED
        return rows[has_state], states[has_state]

    def of(self, places: StackPlaces, waits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The numbers of the states of goroutines that were at `places`, with `waits`."""
        states = [np.zeros(0, np.int64)]
        for begin in range(0, len(waits), AT_ONCE):
            part = slice(begin, begin + AT_ONCE)
            self._stacks.plan(places.part(part))
            read, asked = self._stacks.read(), waits[part]
            depths = places.his[part] - places.sps[part]
            rows = np.arange(len(asked))
            states.append(self._states(self._stacks, read, rows, asked, depths, is_last=True))
        return np.concatenate(states)

    def _states(
        self,
        reader: QuickStackReader,
        read: QuickHeads,
        rows: npt.NDArray[np.int64],
        waits: npt.NDArray[np.uint64],
        depths: npt.NDArray[np.uint64],
        *,
        is_last: bool,
    ) -> npt.NDArray[np.int64]:
        """The states of the goroutines in these rows, at the look with `waits` and `depths`.

        ENDED for those without a stack unless this `is_last`.
        """
        is_exact = read.is_exact[rows] & (read.waits[rows] == waits)
        numbers = np.full(len(rows), UNKNOWN)
        are_many = len(rows) > _FEW
        if are_many and len(exact := rows[is_exact]):
            numbers[is_exact] = self._seen.find(read, exact, reader.words)
        alike = map(
            Alike,
            depths.tolist(),
            (waits >> _REASON & _BYTE).tolist(),
            read.start_pcs[rows].tolist(),
        )
        states: list[int] = []
        walked: list[tuple[int, SeenStack]] = []
        for row, wait, number, group, labels in zip(
            *(rows.tolist(), waits.tolist(), numbers.tolist(), alike, read.labels[rows].tolist()),
            strict=True,
        ):
            if number != UNKNOWN:
                stack = self._seen.stacks[number]
                self._believed.keep(group, stack.pcs)
            elif wait & 0xFF == RUNNING:
                stack = SeenStack((), UNKNOWN, -1)
            else:
                found = reader.stack(row)
                if not (found.walk.pcs or is_last):
                    states.append(ENDED)
                    continue
                is_first = found.is_exact and int(read.waits[row]) == wait
                pcs = self._believed.of(group, wait, int(read.waits[row]), found)
                stack = SeenStack(pcs, UNKNOWN, found.sema_at)
                if are_many and is_first and found.is_near and found.walk.is_whole:
                    stack = stack._replace(state=self._number(wait, stack.pcs, group.start_pc))
                    walked.append((row, stack))
            sema = 0
            if stack.sema_at >= 0 and self._has_semaphores:
                sema = int(reader.words[row, stack.sema_at])
            is_plain = stack.state != UNKNOWN and not sema and not (labels and self._labels)
            states.append(
                stack.state
                if is_plain
                else self._number(wait, stack.pcs, group.start_pc, self._labels_of(labels), sema)
            )
        for row, stack in walked:  # not before: that may forget the others
            self._seen.learn(read, row, reader.words, stack)
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
        found = self._labels.read_if_there(address)
        self.unlabelled += found is None
        return found
