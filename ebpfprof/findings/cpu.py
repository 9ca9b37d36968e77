"""What a process used its CPU time for, by functions on the stacks of its CPU profile."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ebpfprof.findings.work import Share
from ebpfprof.profile.operations import caller_outside_library, is_in_library

if TYPE_CHECKING:
    from ebpfprof.profile.model import Frame, Profile


@dataclass(frozen=True, slots=True)
class HotStack:
    """A stack on the CPU: its frames, innermost first, its CPU time and how often it was sampled.

    `address` is that of its innermost instruction.
    """

    frames: tuple[Frame, ...]
    names: frozenset[str]
    address: int
    ns: int
    samples: int

    @property
    def place(self) -> Frame | None:
        """The innermost frame outside of Go's own library; None if there is none."""
        caller = caller_outside_library(self.frames)
        return None if is_in_library(caller.function) or not self.frames else caller


class Burnt(NamedTuple):
    """Where CPU time was used, and the part of all CPU time that this is."""

    place: Frame
    share: Share


@dataclass(frozen=True)
class CpuTime:
    """All stacks on the CPU in `length_ns` nanoseconds."""

    stacks: tuple[HotStack, ...]
    length_ns: int

    @cached_property
    def total_ns(self) -> int:
        """The CPU time of all stacks."""
        return sum(stack.ns for stack in self.stacks)

    @cached_property
    def samples(self) -> int:
        """How many samples there are."""
        return sum(stack.samples for stack in self.stacks)

    @property
    def processors(self) -> float:
        """How many processors it used on average."""
        return self.total_ns / self.length_ns if self.length_ns else 0.0

    def where(self, is_wanted: Callable[[HotStack], bool]) -> tuple[HotStack, ...]:
        """The stacks that are wanted."""
        return tuple(stack for stack in self.stacks if is_wanted(stack))

    def share(self, stacks: Iterable[HotStack]) -> Share:
        """The part of the CPU time that stacks take. Samples are drawn independently."""
        if not self.total_ns or not self.samples:
            return Share(0.0, 0.0)
        part = sum(stack.ns for stack in stacks) / self.total_ns
        return Share(part, math.sqrt(max(0.0, part * (1 - part)) / self.samples))

    def hottest(self, stacks: Iterable[HotStack]) -> Burnt | None:
        """The function of the program, not of a library, that these stacks most go through.

        Its line is that with most of the time. None if they go through no such function.
        """
        by_function: defaultdict[str, list[HotStack]] = defaultdict(list)
        for stack in stacks:
            if (place := stack.place) is not None:
                by_function[place.function].append(stack)
        if not by_function:
            return None
        most = max(by_function.values(), key=lambda chosen: sum(stack.ns for stack in chosen))
        lines: defaultdict[Frame, int] = defaultdict(int)
        for stack in most:
            if (place := stack.place) is not None:
                lines[place] += stack.ns
        return Burnt(max(lines, key=lines.__getitem__), self.share(most))


def cpu_time_of(cpu: Profile) -> CpuTime:
    """The stacks of a CPU profile."""
    stacks = []
    for sample in cpu.samples:
        frames = tuple(sample.frames)
        names = frozenset(frame.function for frame in frames)
        address = sample.locations[0].address if sample.locations else 0
        stacks.append(HotStack(frames, names, address, sample.values[-1], sample.values[0]))
    return CpuTime(tuple(stacks), cpu.duration_ns)
