"""What the memory of a Go program consists of at a moment."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Objects of one size, which share spans: bytes unless it says so.

    Of class 0, large objects of any size, each with spans of its own, `size` is 0. `objects` are
    those in use, dead ones included until they are swept. `held` is what the spans take, and
    `pointerless` that part of it in which no object has pointers.
    """

    size: int
    mallocs: int
    frees: int
    objects: int
    used: int
    spans: int = 0
    held: int = 0
    pointerless: int = 0

    @property
    def waste(self) -> int:
        """What spans take beyond their objects."""
        return max(0, self.held - self.used)


@dataclass(frozen=True, slots=True)
class Collector:
    """The garbage collector: bytes, unless it says so.

    `cycles` counts collections, `forced` those that the program asked for. `paused_ns` is the sum
    of all pauses, `last_pause_ns` the last one; `last_unix_ns` when the last collection ended, 0 if
    there was none. `percent` is GOGC, -1 for off; `limit` GOMEMLIMIT, None without one. The next
    collection ends at about `goal` of heap, None if none is due. `marked` is what the last one
    found, `live` that with what was allocated since. `cpu_fraction` is its part of the CPU time, 0
    to 1.
    """

    cycles: int
    forced: int
    paused_ns: int
    last_pause_ns: int
    last_unix_ns: int
    percent: int
    limit: int | None
    goal: int | None
    live: int
    marked: int
    cpu_fraction: float


@dataclass(frozen=True, slots=True)
class CollectorCpu:
    """The time of processors (GOMAXPROCS of them) since the program began, as /cpu/classes.

    The runtime updates it when a collection ends. `assist_ns` is the time of goroutines that had to
    help before they could allocate, `dedicated_ns` that of workers, `idle_workers_ns` that of
    workers on processors that had nothing else to do, `paused_ns` that of all processors while
    the world was stopped. `idle_ns` is the time of idle processors; `total_ns` that of all.
    """

    assist_ns: int
    dedicated_ns: int
    idle_workers_ns: int
    paused_ns: int
    scavenger_ns: int
    idle_ns: int
    user_ns: int
    total_ns: int

    @property
    def collections_ns(self) -> int:
        """The time of collections that others could have used."""
        return self.assist_ns + self.dedicated_ns + self.paused_ns

    @property
    def busy_ns(self) -> int:
        """The time of processors that were not idle."""
        return self.total_ns - self.idle_ns - self.idle_workers_ns

    def __sub__(self, earlier: Self) -> CollectorCpu:
        """What was added since then."""
        return CollectorCpu(
            *(
                getattr(self, field.name) - getattr(earlier, field.name)
                for field in fields(CollectorCpu)
            )
        )


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """As runtime.MemStats: bytes, but for counts of objects.

    `idle` is heap that is free, `released` that part of it which the kernel has back. `is_settled`
    shows that no collection began or ended while it was read.
    """

    total_allocated: int
    total_freed: int
    mallocs: int
    frees: int
    tiny_mallocs: int
    heap_mapped: int
    heap_in_use: int
    idle: int
    released: int
    stacks_in_use: int
    stacks_mapped: int
    spans_in_use: int
    spans_mapped: int
    caches_in_use: int
    caches_mapped: int
    profile_buckets: int
    collector_mapped: int
    other_mapped: int
    mapped: int
    collector: Collector
    classes: tuple[SizeClass, ...]
    is_settled: bool

    @property
    def allocated(self) -> int:
        """What the objects take that are in use."""
        return self.total_allocated - self.total_freed

    @property
    def objects(self) -> int:
        """How many objects are in use."""
        return self.mallocs - self.frees


@dataclass(frozen=True, slots=True)
class TypeBytes:
    """The objects of one type: how many, and what their slots take in bytes."""

    name: str
    objects: int
    used: int


@dataclass(frozen=True, slots=True)
class LargeObject:
    """An object with spans of its own: its size in bytes, and its type, "" if that is not known."""

    size: int
    type: str


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """What the memory of a process consists of.

    `types` are the largest ones of objects whose type the heap tells, `typed` is what all of these
    take in bytes; None before Go 1.22, which does not record them. `typed_share` is the part of the
    spans with types that was read: below 1 for very large heaps, and then the others are scaled.
    """

    statistics: MemoryStatistics
    large: tuple[LargeObject, ...]
    types: tuple[TypeBytes, ...] | None
    typed: int
    typed_share: float = 1.0
