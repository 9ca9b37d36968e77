"""A timeline as exporters see it: steps, and what stacks, goroutines and threads are called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.profile.model import Frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ebpfprof.profile.model import Label
    from ebpfprof.profile.waiting_for import OpenFile
    from ebpfprof.timeline.steps import TraceStep

UNNAMED: Final = "?"
KERNEL_FILE: Final = "[kernel.kallsyms]"
"""The file of the kernel's functions in stacks; their lines are 0."""


class WaitObject(NamedTuple):
    """What a goroutine waits for: its name as shown, and a network wait's file.

    `name` is "main.cache.mu" for a lock, which is at `place` ("sync.Mutex at 0xc000012340"), or
    what is done with a file: "read from 10.0.0.1:80, here 10.0.0.2:4711 (tcp, fd 7)". Not
    `is_named`: it has only an address or a descriptor: "sync.Mutex at 0xc000012340", "chan at
    0xc000020060", "fd 7". One lock for readers and writers may have several keys.
    """

    name: str
    file: OpenFile | None = None
    is_named: bool = True
    place: str = ""

    @property
    def text(self) -> str:
        """All that is known, in one line."""
        return f"{self.name} ({self.place})" if self.place else self.name


class HeapSize(NamedTuple):
    """The bytes of the heap from `at_ns` on, and the goal of the next collection; None: none."""

    at_ns: int
    live: int
    goal: int | None


class StackCall(NamedTuple):
    """A logical frame of a stack, and the runtime address of the call.

    `pc` is the runtime address at which Go sees this frame: another one than `address` if the
    function that it called was inlined into it.
    """

    address: int
    frame: Frame
    pc: int


@dataclass(frozen=True, slots=True)
class TimelineGoroutine:
    """What does not change: where it begins, where it was created, by whom (0: not known)."""

    goid: int
    start: StackCall | None
    created: Frame | None
    parent: int
    is_system: bool = False

    @property
    def name(self) -> str:
        """The function that it begins with."""
        return self.start.frame.function if self.start else UNNAMED


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Timeline:
    """What was recorded of a process from `begin_ns` to `end_ns` (CLOCK_MONOTONIC).

    `begin_unix_ns` is the Unix time of `begin_ns`. Steps of each thread are in order; they refer to
    `stacks` (innermost call first), `goroutines` by goid, `threads` (names) by id, `label_sets` and
    `objects` (what goroutines wait for) by key. `comments` say what is missing.
    """

    pid: int
    command: str
    go_version: str
    begin_ns: int
    end_ns: int
    begin_unix_ns: int
    steps: Sequence[TraceStep]
    stacks: Mapping[int, tuple[StackCall, ...]]
    goroutines: Mapping[int, TimelineGoroutine]
    threads: Mapping[int, str]
    label_sets: Mapping[int, tuple[Label, ...]]
    labels: Mapping[int, tuple[Label, ...]]
    """By goid, of those that had some when they were read."""
    comments: tuple[str, ...] = ()
    objects: Mapping[int, WaitObject] = field(default_factory=dict)
    heap: Sequence[HeapSize] = ()
    """By time; the first may be from before."""
    has_exact_starts: bool = False
    """Whether it was seen when goroutines begin to run; else what follows shows it."""
