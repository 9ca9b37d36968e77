"""The stacks of goroutines that stay in one state: which of them a condition means."""

from __future__ import annotations

from itertools import groupby
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.console.text import duration, printable
from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.goruntime.goroutines.states import RUNNABLE, SYSCALL
from ebpfprof.profile.idle import rule_of
from ebpfprof.profile.model import Location, Sample
from ebpfprof.profile.operations import operation_of
from ebpfprof.tracing.wait_conditions import goid_of, status_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine, GoroutineScanner
    from ebpfprof.goruntime.goroutines.table import GoroutineTable
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.model import Frame
    from ebpfprof.tracing.state_numbers import StateNumbers
    from ebpfprof.tracing.wait_conditions import WaitCondition

_KIND: Final = "wall"  # of the idle rules: those for all waits, network and sleep, too


class FoundWait(NamedTuple):
    """A goroutine that a condition means. `goroutine` is None if it has moved on just now."""

    state: int
    goroutine: Goroutine | None
    place: Frame | None

    def sentence(self, lasted_ns: int) -> str:
        """Which goroutine, what it does, for how long at least, and where."""
        status = status_of(self.state)
        did, why = "waited", f" ({self.goroutine.state})" if self.goroutine else ""
        if status == RUNNABLE:
            did, why = "been runnable", ", without a processor"
        elif status == SYSCALL:
            did, why = "been in a system call", ""
        where = ""
        if self.place:
            file = printable(PurePosixPath(self.place.file).name)
            where = f": {printable(self.place.function)}, {file}:{self.place.line}"
        return (
            f"goroutine {goid_of(self.state)} has {did} for at least {duration(lasted_ns)}"
            f"{why}{where}"
        )


class WaitStacks:
    """Reads stacks when a state has lasted long enough, and not before."""

    def __init__(
        self,
        go: GoTarget,
        scanner: GoroutineScanner,
        table: GoroutineTable,
        states: StateNumbers,
    ) -> None:
        """All are of one process, and stay open. Raises GoTableError."""
        self._scanner, self._table, self._states = scanner, table, states
        self._frames = StackFrames(go)

    def first(
        self, condition: WaitCondition, states: Sequence[int], rejected: set[int]
    ) -> FoundWait | None:
        """The first of these states that the condition means; others go into `rejected`.

        Raises TargetGone, UnreadableMemory or GoTableError.
        """
        if not states:
            return None
        goroutines = {goroutine.goid: goroutine for goroutine in self._scanner.scan().goroutines}
        # Stacks belong to the states that are still there: they were read in between.
        still = set(self._states.of(self._table.read()).tolist())
        for state in states:
            call = goroutines.get(goid_of(state))
            if call is None or state not in still:
                if condition.needs_stack:
                    continue  # the next sample has its next state
                return FoundWait(state, None, None)
            place = self._place(condition, call)
            if place is not None:
                return FoundWait(state, call, place)
            rejected.add(state)
        return None

    def _place(self, condition: WaitCondition, goroutine: Goroutine) -> Frame | None:
        """Where the goroutine is, in the program's code; None if it is not meant."""
        if self._frames.is_system(goroutine.start_pc, goroutine.pcs, goroutine.state):
            return None
        sample = self._sample(goroutine)
        _, place = operation_of(sample)
        function = condition.function
        if function and all(frame.function != function for frame in sample.frames):
            return None
        is_named = place.function == function
        if condition.leaves_out_idle and not is_named and rule_of(_KIND, sample):
            return None
        return place

    def _sample(self, goroutine: Goroutine) -> Sample:
        calls = groupby(self._frames.physical(goroutine.pcs), key=lambda call: call.number)
        locations = [
            Location(calls[0].address, None, tuple(call.frame for call in calls))
            for calls in (list(of) for _, of in calls)
        ]
        return Sample(tuple(locations), (1, 0))
