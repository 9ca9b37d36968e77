"""Turns goroutines into the samples of a goroutine profile, with names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.goroutines.frames import PhysicalFrame, StackFrames
from ebpfprof.profile.model import Frame, Label, Location, Sample
from ebpfprof.profilers.goroutines.kinds import GOROUTINE
from ebpfprof.profilers.labels import chosen

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.all_goroutines import AllGoroutines
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.model import Mapping
    from ebpfprof.profilers.report_builder import ReportBuilder

# Readers distinguish locations by their addresses, and take 0 for none.
_RUNNING: Final = Location(1, None, (Frame("[running: no stack]", "", 0),))
_MOVED: Final = Location(2, None, (Frame("[moved: no stack]", "", 0),))


class GoroutineStacks:
    """The locations of stacks of one target; each stack is looked up once."""

    def __init__(self, go: GoTarget) -> None:
        self.go = go
        self._frames = StackFrames(go)
        self._depth = go.binary.layout.profile_stacks.max_depth
        self._known: dict[tuple[int, ...], tuple[Location, ...]] = {}
        self._locations: dict[tuple[int, tuple[Frame, ...]], Location] = {}

    def samples(
        self,
        goroutines: AllGoroutines,
        wanted: tuple[str, ...] | None,
        *,
        has_wrappers: bool = False,
    ) -> list[Sample]:
        """A sample for each stack and set of labels, without the runtime's own goroutines.

        For `has_wrappers` see of().

        Stacks are as deep as Go's own profile has them. Raises GoTableError.
        """
        self.look_up(
            pc
            for goroutine in goroutines.goroutines
            for pc in (*goroutine.pcs, goroutine.start_pc)
            if pc
        )
        counts = Counter[tuple[tuple[Location, ...], tuple[Label, ...]]]()
        for read in goroutines.goroutines:
            if not self.is_system(read.start_pc, read.pcs, read.state):
                stack = self.of(read.state, read.pcs, read.start_pc, has_wrapper=has_wrappers)
                counts[stack, chosen(read.labels or (), wanted)] += 1
        return [Sample(stack, (count,), labels) for (stack, labels), count in counts.items()]

    def look_up(self, pcs: Iterable[int]) -> None:
        """Look up many addresses at once. Raises GoTableError."""
        self._frames.look_up(set(pcs))

    def is_system(self, start_pc: int, pcs: tuple[int, ...], state: str) -> bool:
        """Whether a goroutine is the runtime's own: see StackFrames.is_system."""
        return self._frames.is_system(start_pc, pcs, state)

    def of(
        self, state: str, pcs: tuple[int, ...], start_pc: int, *, has_wrapper: bool = False
    ) -> tuple[Location, ...]:
        """The stack of a goroutine; of one without a stack, why, and where it began.

        With `has_wrapper`, the outermost function may be the wrapper of its `go` statement, whose
        name says which function that is in.
        """
        wrapped = self._frames.wrapped(start_pc) if start_pc else 0
        wrapper = self._of((start_pc,)) if has_wrapper and wrapped != start_pc else ()
        if pcs:
            return (*self._of(pcs), *wrapper)
        leaf = _RUNNING if state == "running" else _MOVED
        if not start_pc:
            return (leaf,)
        return (leaf, *self._of((wrapped,)), *wrapper)

    def _of(self, pcs: tuple[int, ...]) -> tuple[Location, ...]:
        stack = self._known.get(pcs)
        if stack is None:
            shown, depth = self._frames.physical(pcs), self._depth
            # Go writes the last physical frame with all that is inlined into it
            # (runtime/symtab.go, expandFinalInlineFrame).
            while depth < len(shown) and shown[depth].number == shown[depth - 1].number:
                depth += 1
            physical = groupby(shown[:depth], key=lambda frame: frame.number)
            stack = self._known[pcs] = tuple(
                self._location(tuple(frames)) for _, frames in physical
            )
        return stack

    def _location(self, physical: tuple[PhysicalFrame, ...]) -> Location:
        """One object for each, so that exports are fast."""
        address, frames = physical[0].address, tuple(inlined.frame for inlined in physical)
        key = address, frames
        if key not in self._locations:
            mapping = _mapping_of(address, self.go.mappings)
            self._locations[key] = Location(address, mapping, frames)
        return self._locations[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGoroutines:
    """The goroutines of a process at a moment; None if they could not be read."""

    goroutines: AllGoroutines | None


def report(read: ReadGoroutines, stacks: GoroutineStacks, builder: ReportBuilder) -> None:
    """Add the goroutine profile."""
    account = builder.account(GOROUTINE, f"{GOROUTINE.title} profile")
    samples: list[Sample] = []
    if read.goroutines is not None:
        try:
            options = builder.options
            samples = stacks.samples(
                read.goroutines, options.labels, has_wrappers=options.by_handler
            )
        except Exception as error:  # any error: the other profiles matter more
            builder.fail(error)
    profile = GOROUTINE.make_profile(
        samples,
        stacks.go.mappings,
        time_ns=builder.recording.started_unix_ns,
        duration_ns=account.length_ns,
    )
    builder.add(profile, account)


def _mapping_of(address: int, mappings: tuple[Mapping, ...]) -> Mapping | None:
    return next((mapping for mapping in mappings if mapping.start <= address < mapping.limit), None)
