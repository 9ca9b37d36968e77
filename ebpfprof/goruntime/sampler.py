"""Looks at all goroutines of a target at random times: what they do, and where.

No probe, no stop: a look reads the heads of all runtime.g from the target's memory, and the stacks
of those that moved since the last look. How long goroutines are in a state is then how often looks
find them there (Little's law), whatever the length of a wait. The first look at a goroutine decides
what it does; we read its stack right after it. If it has moved on by then, what is left on the
stack tells who called. To leave such goroutines out would be a bias: the shorter a wait, the more
of them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.heads import GOID_SHIFT, HeadReader
from ebpfprof.goruntime.idle_watch import IdleWatch
from ebpfprof.goruntime.labels import LabelReader
from ebpfprof.goruntime.quick_stacks import (
    AT_ONCE,
    QuickHead,
    QuickStack,
    QuickStackReader,
    StackPlace,
)
from ebpfprof.goruntime.stack_starts import GONE, PARKED, RUNNABLE, RUNNING, SYSCALL, StateNames
from ebpfprof.goruntime.state_sums import GoroutineState, StateSums, StateTotals
from ebpfprof.goruntime.wait_causes import CauseReader
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.process.memory import Memory, UnreadableMemory
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines import ParkedGoroutine
    from ebpfprof.goruntime.heads import Heads
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.behaviour import IdleBehaviour
    from ebpfprof.profile.model import Label

# For so many looks after a goroutine moved, we read its stack together with its head.
_STAYS_MOVER: Final = 4
_MAX_KNOWN: Final = 1 << 16
_GOID_SHIFT: Final = np.uint64(GOID_SHIFT)
_IS_GONE: Final = np.isin(np.arange(1 << 8), GONE)


class GoroutineSampler(Closing):
    """The looks at one target. Any thread may use it. Closes the target's memory."""

    def __init__(self, go: GoTarget, *, has_labels: bool, has_semaphores: bool = False) -> None:
        """Open the target's memory. Tell states apart by labels and semaphores if asked for.

        Raises TargetGone, PermissionDenied or GoTableError (there is no list of goroutines).
        """
        self._memory = Memory(go.target)
        layout = go.binary.layout
        self._heads = HeadReader(go, self._memory)
        self._quick = QuickStackReader(go, self._memory)
        self._stacks = QuickStackReader(go, self._memory)
        self._labels = LabelReader(self._memory, layout) if has_labels else None
        self._names = StateNames(layout)
        self._has_semaphores = has_semaphores
        self._returns = {park.return_pc + go.load_bias for park in go.sites.parks}
        self._lock = threading.Lock()
        self._sums = StateSums()
        self._causes = CauseReader(go, self._memory)
        self._watch = IdleWatch(self._causes)
        self._forget()
        self._ends: set[int] = set()
        self._known: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self.torn = 0
        """Stacks read a moment too late, of goroutines that had moved on; most are right."""
        self.unknown = 0
        """Goroutines without a stack: they had moved on, and nothing told where they were."""
        self.unlabelled = 0
        """Goroutines whose labels could not be read."""
        self.beyond = 0
        """Goroutines that the last look did not read: there are too many."""

    def look(self) -> None:
        """Look now. Raises TargetGone or UnreadableMemory."""
        with self._lock:
            self._look()

    def pause(self) -> None:
        """The looks end for now: what goes on has neither begun nor ended to the next one."""
        with self._lock:
            self._sums.pause()
            self._watch = IdleWatch(self._causes)
            self._forget()

    def totals(self) -> StateTotals:
        """The sums of all looks so far."""
        with self._lock:
            return self._sums.totals()

    def idle(self) -> dict[GoroutineState, tuple[IdleBehaviour, frozenset[int]]]:
        """The waits that are idle by behaviour, with the ids of their goroutines: see idle_watch.

        None of them before the looks begin, and after a pause().
        """
        with self._lock:
            found = self._watch.behaviours()
            return {state: (each, self._watch.goids(state)) for state, each in found.items()}

    def park_at(self, pcs: tuple[int, ...]) -> int | None:
        """Where in a stack an operation begins that Go's block profiler hooks; None without one.

        The stack is one from goruntime.all_goroutines, of a goroutine that waits in the operation
        or was woken and has not run yet: see GoroutineReader.look.
        """
        return next((at for at, pc in enumerate(pcs[:3]) if pc in self._returns), None)

    def standing(self, parked: list[ParkedGoroutine], *, least_ns: int) -> dict[int, int]:
        """Which of these goroutines have not moved for `least_ns` until the last look, or longer.

        Returns by address of the runtime.g when a look found it in this wait first
        (CLOCK_MONOTONIC, ns): a lower bound of how long it waits.
        """
        with self._lock:
            index = {address: at for at, address in enumerate(self._addresses.tolist())}
            found = {}
            for each in parked:
                at = index.get(each.address)
                if at is None or self._last_ns - int(self._since_ns[at]) < max(least_ns, 1):
                    continue
                wait = int(self._waits[at])
                is_same = wait >> GOID_SHIFT == each.goid and wait >> 16 & 0xFF == each.sequence
                if is_same and wait & 0xFF in PARKED:
                    found[each.address] = int(self._since_ns[at])
            return found

    def standing_states(self, least_ns: int) -> dict[GoroutineState, tuple[int, int]]:
        """What goroutines do that have not moved for `least_ns` until the last look, or longer.

        Returns how many they are, and for how long the one that stands longest: a lower bound.
        """
        found: dict[GoroutineState, tuple[int, int]] = {}
        with self._lock:
            stands = (self._waits != 0) & (self._last_ns - self._since_ns >= least_ns)
            stands &= np.isin(self._waits & np.uint64(0xFF), PARKED)
            for slot in np.flatnonzero(stands).tolist():
                if state := self._sums.state_of(slot):
                    count, longest_ns = found.get(state, (0, 0))
                    stood_ns = self._last_ns - int(self._since_ns[slot])
                    found[state] = count + 1, max(longest_ns, stood_ns)
        return found

    def close(self) -> None:
        """Close the target's memory; the sums stay."""
        with self._lock:
            self._memory.close()

    def _forget(self) -> None:
        """The next look has none before it."""
        self._addresses = np.zeros(0, np.uint64)
        self._waits = np.zeros(0, np.uint64)
        self._sps = np.zeros(0, np.uint64)  # of the last stack
        self._his = np.zeros(0, np.uint64)
        self._since_ns = np.zeros(0, np.int64)
        self._moved_at = np.zeros(0, np.int64)
        self._movers = np.zeros(0, np.int64)
        self._quick.plan(())
        self._looks, self._last_ns = 0, 0

    def _look(self) -> None:
        quick = self._quick.read()  # first, before the program notices that we run
        now_ns = kernel_now_ns()
        movers = self._movers
        heads = self._heads.read()
        self._grow(heads)
        waits, sps = heads.waits, heads.sps
        read = {}
        for row, (slot, each) in enumerate(zip(movers.tolist(), quick, strict=True)):
            read[slot] = row, each
            waits[slot], sps[slot] = each.wait, each.sp
            heads.pcs[slot], heads.bps[slot] = each.pc, each.bp
        statuses = heads.statuses
        waits[_IS_GONE[statuses] | (waits >> _GOID_SHIFT == 0)] = 0
        has_stack = (waits != 0) & (statuses != RUNNING) & (sps != 0)
        # Of system calls nothing tells whether one is that of the last look.
        has_moved = (waits != self._waits) | (has_stack & (sps != self._sps))
        has_moved |= (waits != 0) & (statuses == SYSCALL)
        slots = np.flatnonzero(has_moved)
        self._sps[has_stack] = sps[has_stack]
        self._his[has_stack] = heads.his[has_stack]
        states = self._states_of(slots, heads, read)
        numbers = slots.tolist()
        before = list(map(self._sums.state_of, numbers))
        self._sums.add(now_ns, zip(numbers, states, strict=True))
        self._watch.note(now_ns, self._addresses, waits, numbers, before, states)
        self._note(now_ns, waits, slots)

    def _places(self, slots: npt.NDArray[np.int64], heads: Heads | None = None) -> list[StackPlace]:
        """Where these goroutines are, and their stacks at the first look, or else last time."""
        columns = [self._addresses[slots], self._sps[slots], self._his[slots]]
        if heads:
            columns += [heads.pcs[slots], heads.bps[slots]]
        return list(map(StackPlace, *(each.tolist() for each in columns)))

    def _grow(self, heads: Heads) -> None:
        """Make room for goroutines that are new; runtime.allgs only grows."""
        count = len(heads.addresses)
        more = count - len(self._addresses)
        if more < 0:
            raise UnreadableMemory("The list of goroutines became shorter, which Go never does.")
        self._addresses = heads.addresses
        self.beyond = heads.beyond
        if more:
            none = np.zeros(more, np.uint64)
            self._waits = np.concatenate((self._waits, none))
            self._sps = np.concatenate((self._sps, none))
            self._his = np.concatenate((self._his, none))
            self._since_ns = np.concatenate((self._since_ns, np.zeros(more, np.int64)))
            self._moved_at = np.concatenate((self._moved_at, np.full(more, -_STAYS_MOVER)))

    def _note(
        self, now_ns: int, waits: npt.NDArray[np.uint64], slots: npt.NDArray[np.int64]
    ) -> None:
        """Keep what the next look needs."""
        self._since_ns[waits != self._waits] = now_ns
        if self._looks:
            self._moved_at[slots] = self._looks
        self._waits = waits
        self._looks += 1
        self._last_ns = now_ns
        movers = np.flatnonzero(self._moved_at > self._looks - _STAYS_MOVER)
        if len(movers) > AT_ONCE:
            order = np.argsort(self._moved_at[movers], kind="stable")
            movers = np.sort(movers[order[-AT_ONCE:]])
        self._movers = movers
        self._quick.plan(self._places(movers))

    def _states_of(
        self, slots: npt.NDArray[np.int64], heads: Heads, quick: dict[int, tuple[int, QuickHead]]
    ) -> list[GoroutineState | None]:
        """What these goroutines do at the first look at each: `heads`.

        `quick` has what _quick has read, and the place, by number of the goroutine.
        """
        found: dict[int, GoroutineState | None] = {}
        left = []
        for slot, wait in zip(slots.tolist(), heads.waits[slots].tolist(), strict=True):
            if not wait:
                found[slot] = None
            elif wait & 0xFF == RUNNING and slot in quick:
                found[slot] = self._state(slot, wait, quick[slot][1], None)
            elif slot in quick and (stack := self._quick.stack(quick[slot][0])).walk.pcs:
                found[slot] = self._state(slot, wait, quick[slot][1], stack)
            else:
                left.append(slot)
        for begin in range(0, len(left), AT_ONCE):
            part = left[begin : begin + AT_ONCE]
            self._stacks.plan(self._places(np.array(part, np.int64), heads))
            for row, (slot, read) in enumerate(zip(part, self._stacks.read(), strict=True)):
                wait = int(heads.waits[slot])
                found[slot] = self._state(slot, wait, read, self._stacks.stack(row))
        return [found[slot] for slot in slots.tolist()]

    def _state(
        self, slot: int, wait: int, read: QuickHead, stack: QuickStack | None
    ) -> GoroutineState:
        """What a goroutine does at its first look, the one with `wait`."""
        status, reason = wait & 0xFF, wait >> 8 & 0xFF
        pcs: tuple[int, ...] = ()
        if status != RUNNING and stack:
            depth = int(self._his[slot]) - int(self._sps[slot])
            pcs = self._stack((depth, reason, read.start_pc), wait, read, stack)
        sema = stack.sema if stack and self._has_semaphores else 0
        labels = self._labels_of(read.labels)
        return GoroutineState(self._names.of(status, reason), pcs, read.start_pc, labels, sema)

    def _stack(
        self, place: tuple[int, int, int], wait: int, read: QuickHead, stack: QuickStack
    ) -> tuple[int, ...]:
        """A stack; `place` is its size, the wait reason, and where the goroutine began."""
        walk = stack.walk
        if stack.is_exact and read.wait == wait:
            if walk.is_whole and len(walk.pcs) > 1:
                self._ends.add(walk.pcs[-1])
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[place] = walk.pcs
            return walk.pcs
        # It moved on before or while we read its stack.
        self.torn += 1
        is_new = len(walk.pcs) == 1 and wait & 0xFF == RUNNABLE  # it has not begun to run
        if stack.is_there and walk.is_whole and (is_new or walk.pcs[-1] in self._ends):
            return walk.pcs
        # Goroutines that began alike and wait alike, as deep in the stack, most likely wait there.
        found = self._known.get(place, ())
        if not found and stack.is_exact and read.wait >> 8 & 0xFF == place[1]:
            found = walk.pcs
        self.unknown += not found
        return found

    def _labels_of(self, address: int) -> tuple[Label, ...] | None:
        if self._labels is None or not address:
            return ()
        try:
            return self._labels.read(address)
        except UnreadableMemory:
            self.unlabelled += 1
            return None
