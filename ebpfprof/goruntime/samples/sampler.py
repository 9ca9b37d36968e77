"""Samples of all goroutines of a target: what they do, and where.

No probe, no stop: a sample is the table of goroutines in the target's memory, and the stacks
of those that moved since the last one. How long goroutines are in a state is then how often samples
see them there (Little's law), whatever the length of a wait. The first read of a goroutine decides
what it does; we read its stack right after it. If it has moved on by then, what is left on the
stack still has the callers. To leave such goroutines out would be a bias: the shorter a wait, the
more of them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.fields import SEQUENCE_SHIFT
from ebpfprof.goruntime.goroutines.parked import park_at
from ebpfprof.goruntime.goroutines.stack_copies import AT_ONCE, StackPlaces
from ebpfprof.goruntime.goroutines.states import RUNNING, SYSCALL, CountedWaits
from ebpfprof.goruntime.goroutines.table import MAX_GOROUTINES, GoroutineTable
from ebpfprof.goruntime.samples.idle_loops import IdleLoops
from ebpfprof.goruntime.samples.state_reader import StateReader
from ebpfprof.goruntime.samples.state_sums import ENDED, GoroutineState, StateSums, StateTotals
from ebpfprof.goruntime.waits.standing import StandingJudge
from ebpfprof.goruntime.waits.wait_causes import CauseReader
from ebpfprof.kernel.clock import kernel_now_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.parked import ParkedGoroutine
    from ebpfprof.goruntime.goroutines.stack_copies import Copies
    from ebpfprof.goruntime.goroutines.table import Heads
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.waits.standing import Threshold
    from ebpfprof.profile.behaviour import IdleBehaviour

_COLUMNS: Final = ("sp", "pc", "bp", "hi", "syscall_sp")
# For this number of samples after a goroutine moved, we read its stack together with its head.
_STAYS_MOVER: Final = 4
_NOTES_APART_NS: Final = 50_000_000  # samples of exact recordings are twice as far apart


class GoroutineSampler:
    """The samples of one target. Any thread may use it."""

    def __init__(
        self,
        go: GoTarget,
        *,
        has_labels: bool,
        has_semaphores: bool = False,
        most: int = MAX_GOROUTINES,
    ) -> None:
        """Open the target's memory. Tell states apart by labels and semaphores if asked for.

        Keep `most` goroutines and states at most.
        Raises TargetGone, PermissionDenied or GoTableError (there is no list of goroutines).
        """
        self._memory = go.target.memory
        self._sums = StateSums(most)
        self.states = StateReader(
            go, self._memory, self._sums, has_labels=has_labels, has_semaphores=has_semaphores
        )
        """What read stacks and labels, with how many of them it could not read."""
        self._table = GoroutineTable(self._memory, go.binary, go.load_bias, *_COLUMNS, most=most)
        self._counted = CountedWaits(go.binary.layout)
        self._judge = StandingJudge(self._counted)
        self._returns = {park.return_pc + go.load_bias for park in go.sites.parks}
        self._lock = threading.Lock()
        self._causes = CauseReader(go, self._memory)
        self._watch = IdleLoops(self._causes)
        self._forget()
        self.announce: Callable[[int], None] = lambda _before_ns: None
        """Called when a sample begins, with the time of the last (CLOCK_MONOTONIC, ns), or 0."""
        self.beyond = 0
        """Goroutines that the last sample did not read: there are too many."""

    def sample(self) -> None:
        """Take a sample, unless the end has come. Raises TargetGone or UnreadableMemory."""
        with self._lock:
            if not self._sums.has_reached_end:
                self._sample()

    @property
    def sampled_ns(self) -> int:
        """When the last sample was taken (CLOCK_MONOTONIC); 0 before one, and after a pause()."""
        return self._last_ns

    def count_from(self, at_ns: int) -> None:
        """Leave what samples found before `at_ns` (CLOCK_MONOTONIC) out of counted()."""
        with self._lock:
            self._sums.count_from(at_ns)

    def end_at(self, at_ns: int) -> None:
        """Count no time after `at_ns` (CLOCK_MONOTONIC), until pause()."""
        with self._lock:
            self._sums.end_at(at_ns)

    def pause(self) -> None:
        """Pause sampling: waits that span the pause count as neither started nor ended."""
        with self._lock:
            self._sums.pause()
            self._watch = IdleLoops(self._causes)
            self._forget()

    def totals(self) -> StateTotals:
        """The sums of all samples so far."""
        with self._lock:
            return self._sums.totals()

    def counted(self) -> StateTotals:
        """The sums of the time from count_from() to end_at()."""
        with self._lock:
            return self._sums.counted()

    def idle(self) -> dict[GoroutineState, tuple[IdleBehaviour, frozenset[int]]]:
        """The waits that are idle by behaviour, with the ids of their goroutines: see idle_loops.

        None of them before samples begin, after a pause(), and where not all goroutines are read.
        """
        with self._lock:
            if self.beyond:
                return {}
            behaviours = self._watch.behaviours()
            return {
                state: (behaviour, self._watch.goids(state))
                for state, behaviour in behaviours.items()
            }

    def park_at(self, pcs: tuple[int, ...]) -> int | None:
        """Where in a stack an operation begins that Go's block profiler hooks; None without one.

        The stack is one from all_goroutines, of a goroutine that waits in the operation or was
        woken and has not run yet.
        """
        return park_at(pcs, self._returns)

    def standing(self, parked: list[ParkedGoroutine], threshold: Threshold) -> dict[int, int]:
        """Which of these goroutines stand still as of the last sample.

        Returns by address of the runtime.g when a sample saw it in this wait first
        (CLOCK_MONOTONIC, ns): a lower bound of how long it waits.
        """
        with self._lock:
            standing = self._judge.standing(threshold)
            by_address = {
                address: (wait >> SEQUENCE_SHIFT, since_ns)
                for address, wait, since_ns in zip(
                    self._addresses[standing.slots].tolist(),
                    standing.waits.tolist(),
                    standing.since_ns.tolist(),
                    strict=True,
                )
            }
        return {
            goroutine.address: by_address[goroutine.address][1]
            for goroutine in parked
            if goroutine.address in by_address
            and by_address[goroutine.address][0] == goroutine.goid << 8 | goroutine.sequence
        }

    def standing_states(self, threshold: Threshold) -> dict[GoroutineState, tuple[int, int, int]]:
        """What goroutines do that stand still as of the last sample.

        Returns how many they are, and for how long (ns) the oldest and the newest stand at least.
        """
        states: dict[GoroutineState, tuple[int, int, int]] = {}
        with self._lock:
            standing = self._judge.standing(threshold)
            times = zip(standing.slots.tolist(), standing.since_ns.tolist(), strict=True)
            for slot, since_ns in times:
                if state := self._sums.state_of(slot):
                    stood_ns = self._judge.began_ns - since_ns
                    count, oldest_ns, newest_ns = states.get(state, (0, stood_ns, stood_ns))
                    ages_ns = max(oldest_ns, stood_ns), min(newest_ns, stood_ns)
                    states[state] = count + 1, *ages_ns
        return states

    def _forget(self) -> None:
        """The next sample has none before it."""
        self._last_ns = 0
        self._judge = StandingJudge(self._counted)
        self._addresses = np.zeros(0, np.uint64)
        self._sps = np.zeros(0, np.uint64)  # of the last stack
        self._his = np.zeros(0, np.uint64)
        self._moved_at = np.zeros(0, np.int64)
        self._movers = np.zeros(0, np.int64)
        self.states.plan(self._places(self._movers))
        self._samples = 0
        self._noted = np.zeros(0, np.int64)
        self._is_unnoted = np.zeros(0, np.bool_)
        self._noted_ns = 0

    def _sample(self) -> None:
        self.announce(self._last_ns)
        begun_ns = kernel_now_ns()
        quick = self.states.read_movers()  # first, before the program notices that we run
        now_ns = self._last_ns = kernel_now_ns()
        movers = self._movers
        heads = self._table.read()
        ended_ns = kernel_now_ns()
        self._grow(heads)
        waits, sps = heads.waits, heads["sp"]
        if len(movers):
            waits[movers] = quick.waits
            for name in _COLUMNS:
                heads[name][movers] = quick.g[name]
        statuses = heads.statuses
        # In C, g.sched is deeper in the stack (runtime/asm_amd64.s, asmcgocall).
        in_c = (statuses == SYSCALL) & (heads["syscall_sp"] != 0) & (heads["syscall_sp"] != sps)
        np.copyto(sps, heads["syscall_sp"], where=in_c)
        heads["pc"][in_c] = 0
        waits[~heads.is_there] = 0
        is_there = waits != 0
        has_stack = is_there & (statuses != RUNNING) & (sps != 0)
        # Of system calls nothing shows whether one is that of the last sample.
        has_moved = self._judge.moved(waits) | (has_stack & (sps != self._sps))
        has_moved |= is_there & (statuses == SYSCALL)
        slots = np.flatnonzero(has_moved)
        np.copyto(self._sps, sps, where=has_stack)
        np.copyto(self._his, heads["hi"], where=has_stack)
        self._sums.add(now_ns, slots, self._states_of(slots, heads, quick))
        self._watch_idle(now_ns, waits, slots)
        self._note(begun_ns, ended_ns, waits, slots)

    def _watch_idle(
        self, now_ns: int, waits: npt.NDArray[np.uint64], slots: npt.NDArray[np.int64]
    ) -> None:
        """Have idle_loops note what changed since it last did; it takes time for each change."""
        self._is_unnoted[slots] = True
        if now_ns - self._noted_ns < _NOTES_APART_NS:
            return
        changed = np.flatnonzero(self._is_unnoted)
        numbers, state = self._sums.numbers_now(changed), self._sums.state
        before = [state(number) for number in self._noted[changed].tolist()]
        states = [state(number) for number in numbers.tolist()]
        self._watch.note(now_ns, self._addresses, waits, changed.tolist(), before, states)
        self._noted[changed] = numbers
        self._is_unnoted[changed] = False
        self._noted_ns = now_ns

    def _states_of(
        self, slots: npt.NDArray[np.int64], heads: Heads, movers: Copies
    ) -> npt.NDArray[np.int64]:
        """What these goroutines do at the first read of each, `heads`, by number."""
        states = np.full(len(heads.waits), ENDED)
        is_left = np.zeros(len(heads.waits), np.bool_)
        is_left[slots] = heads.waits[slots] != 0
        rows = np.flatnonzero(is_left[self._movers])
        if len(rows):
            rows, numbers = self.states.of_movers(movers, rows)
            states[self._movers[rows]] = numbers
            is_left[self._movers[rows]] = False
        left = np.flatnonzero(is_left)
        if len(left):
            states[left] = self.states.of(self._places(left, heads), heads.waits[left])
        return states[slots]

    def _places(self, slots: npt.NDArray[np.int64], heads: Heads | None = None) -> StackPlaces:
        """Where these goroutines are, and their stacks at the first read, or else last time."""
        none = np.zeros(len(slots), np.uint64)
        pcs, bps = (heads["pc"][slots], heads["bp"][slots]) if heads else (none, none)
        return StackPlaces(self._addresses[slots], self._sps[slots], self._his[slots], pcs, bps)

    def _grow(self, heads: Heads) -> None:
        """Make room for goroutines that are new; runtime.allgs only grows."""
        count = len(heads.addresses)
        more = count - len(self._addresses)
        self._addresses = heads.addresses
        self.beyond = heads.beyond
        if more:
            none = np.zeros(more, np.uint64)
            self._sps = np.concatenate((self._sps, none))
            self._his = np.concatenate((self._his, none))
            self._moved_at = np.concatenate((self._moved_at, np.full(more, -_STAYS_MOVER)))
            self._noted = np.concatenate((self._noted, np.full(more, ENDED)))
            self._is_unnoted = np.concatenate((self._is_unnoted, np.zeros(more, np.bool_)))

    def _note(
        self,
        begun_ns: int,
        ended_ns: int,
        waits: npt.NDArray[np.uint64],
        slots: npt.NDArray[np.int64],
    ) -> None:
        """Keep what the next sample needs."""
        self._judge.add(waits, begun_ns, ended_ns)
        if self._samples:
            self._moved_at[slots] = self._samples
        self._samples += 1
        movers = np.flatnonzero(self._moved_at > self._samples - _STAYS_MOVER)
        if len(movers) > AT_ONCE:
            order = np.argsort(self._moved_at[movers], kind="stable")
            movers = np.sort(movers[order[-AT_ONCE:]])
        self._movers = movers
        self.states.plan(self._places(movers))
