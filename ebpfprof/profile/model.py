"""The profile as every exporter sees it: samples, stacks, mappings. Knows nothing of BPF.

The shapes are those of profile.proto with references in place of ids. Equal objects are the
same object to an exporter, so a producer should make each Location once and share it: that is
also what makes encoding fast.
"""

from dataclasses import dataclass, field, replace
from typing import Protocol, Self

UNKNOWN = "[unknown]"
"""The name of a frame without one, for people."""

Kind = str
"""What was profiled, by ProfileKind.name; "" is a profile of something else, read from a file."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """What one column of values counts, and its unit, e.g. delay in nanoseconds."""

    type: str
    unit: str


@dataclass(frozen=True, slots=True)
class Mapping:
    """One executable mapping of the target: addresses [start, limit) from `offset` of a file."""

    start: int
    limit: int
    offset: int
    filename: str
    build_id: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One logical frame. `function` is the full symbol name; `start_line` is 0 if unknown."""

    function: str
    file: str
    line: int
    start_line: int = 0


@dataclass(frozen=True, slots=True)
class Location:
    """One physical frame.

    `address` is that of the call, as Go writes it (return address - 1; the exact pc only for
    the interrupted leaf of a CPU sample). `frames` holds the logical frames at that address,
    innermost inlined call first; it is empty where nothing is known of the address.
    """

    address: int
    mapping: Mapping | None
    frames: tuple[Frame, ...]

    def __hash__(self) -> int:
        # Not of all, which takes many times as long: this tells nearly all of them apart.
        if not self.frames:
            return hash(self.address)
        leaf = self.frames[0]
        return hash((self.address, leaf.function, leaf.line))


@dataclass(frozen=True, slots=True)
class Label:
    """A tag of a sample: a string, or a number with a unit."""

    key: str
    value: str | int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One stack, leaf first, with one value for each sample type of the profile."""

    locations: tuple[Location, ...]
    values: tuple[int, ...]
    labels: tuple[Label, ...] = ()

    @property
    def frames(self) -> list[Frame]:
        """All logical frames of its stack, the innermost first."""
        return [frame for location in self.locations for frame in location.frames]


class Account(Protocol):
    """What is to be said of a profile that grows: comments() turns it into words."""

    def __sub__(self, earlier: Self) -> Self: ...

    def __add__(self, later: Self) -> Self: ...

    def comments(self) -> tuple[str, ...]:
        """The profile's comments."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A whole profile. `mappings[0]` is the main binary; times are Unix time and a length.

    Where there is an `account`, `comments` are its own; else nothing is known of what they mean.
    """

    kind: Kind
    sample_types: tuple[ValueType, ...]
    period_type: ValueType
    period: int
    samples: tuple[Sample, ...]
    mappings: tuple[Mapping, ...]
    time_ns: int
    duration_ns: int
    comments: tuple[str, ...]
    account: Account | None = field(default=None, compare=False)

    def accounted(self, account: Account | None) -> Self:
        """The same profile with what is to be said of it now, if that is known."""
        if account is None:
            return self
        return replace(self, account=account, comments=account.comments())


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that goroutines waited for.

    `address` is that of the sync.Mutex or sync.RWMutex, and `type` one of these names, or "" if
    the semaphore at `address` is of something else. `name` is that of its variable or field, if it
    is known. `waits` and `releases` are the stacks that waited for it and those that made the
    others wait, with (count, nanoseconds), and `still_waiting` those that do so at the end, with
    (goroutines, nanoseconds so far). Of `holds` times it is known how long the lock was held:
    `held_ns` in all.
    """

    address: int
    type: str
    name: str | None
    waits: tuple[Sample, ...]
    releases: tuple[Sample, ...]
    holds: int
    held_ns: int
    still_waiting: tuple[Sample, ...] = ()

    @property
    def contentions(self) -> int:
        """How often it was released while others waited."""
        return sum(sample.values[0] for sample in self.releases)

    @property
    def delay_ns(self) -> int:
        """How long others waited for it until it was released, in nanoseconds."""
        return sum(sample.values[1] for sample in self.releases)

    @property
    def waiting_ns(self) -> int:
        """How long those have waited so far that still wait, in nanoseconds."""
        return sum(sample.values[1] for sample in self.still_waiting)
