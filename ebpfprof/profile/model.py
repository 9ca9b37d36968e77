"""The profile as every exporter sees it: samples, stacks, mappings. Independent of BPF.

The classes mirror the messages of profile.proto, with references instead of ids. Exporters treat
equal objects as one object. A producer should make each Location once and share it: that makes
encoding fast.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from ebpfprof.profile.behaviour import IdleBehaviour
from ebpfprof.profile.completeness import Completeness
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram

UNKNOWN = "[unknown]"
"""The name that tables show for a frame without one."""

Kind = str
"""The kind of a profile, by ProfileKind.name; "" for a profile of another tool, from a file."""


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

    @property
    def position(self) -> str:
        """Its line, with the name of the file without the folder: "cache.go:86"."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True, slots=True)
class Location:
    """One physical frame.

    `address` is the address of the call, as Go writes it (return address - 1; the exact pc only for
    the interrupted leaf of a CPU sample). `frames` holds the logical frames at that address,
    innermost inlined call first; it is empty if the name is unknown.
    """

    address: int
    mapping: Mapping | None
    frames: tuple[Frame, ...]

    def __hash__(self) -> int:
        # Hashing all frames takes many times as long; this separates nearly all locations.
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
    """One stack, leaf first, with one value for each sample type of the profile.

    `variance` is that of the value that tables show (ProfileKind.shown) where it is an estimate, in
    its unit squared; else 0. `count_variance` is that of the first value.
    `behaviour` says why its goroutines are idle by what they do; None if they are not. `lengths`
    has its events by how long they were, if they are waits of known length.
    """

    locations: tuple[Location, ...]
    values: tuple[int, ...]
    labels: tuple[Label, ...] = ()
    variance: float = field(default=0.0, compare=False)
    behaviour: IdleBehaviour | None = field(default=None, compare=False)
    count_variance: float = field(default=0.0, compare=False)
    lengths: WaitHistogram = field(default=NO_LENGTHS, compare=False)

    @property
    def frames(self) -> list[Frame]:
        """All logical frames of its stack, innermost first."""
        return [frame for location in self.locations for frame in location.frames]


class Account(Protocol):
    """The facts behind the comments of a profile that grows; accounts add up as profiles do."""

    def __sub__(self, earlier: Self) -> Self: ...

    def __add__(self, later: Self) -> Self: ...

    @property
    def completeness(self) -> Completeness:
        """How many of its events were lost."""

    def comments(self) -> tuple[str, ...]:
        """The comments of a profile with this account, in words."""


class Slices(Protocol):
    """The events of a profile by the time of their end and by their length (wait_slices)."""

    @property
    def times(self) -> Sequence[tuple[float, float]]:
        """When each slice of the recording began and ended, Unix time in seconds."""

    def cells(self, sample: Sample) -> Iterator[tuple[int, int | None, int, int]]:
        """Of a stack: the index of a slice, a bucket of lengths, events there, and their value.

        The bucket is None for events of unknown length. All cells add up to the sample's values.
        """


@dataclass(frozen=True, slots=True)
class PeerSamples:
    """In how many samples goroutines of a handler waited for a peer, in an operation.

    `handler` is the name in its label (profile.handlers), `operation` as profile.operations has it.
    """

    handler: str
    operation: str
    peer: str
    samples: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A whole profile. `mappings[0]` is the main binary; `time_ns` is Unix time, the beginning.

    With an `account`, `comments` are its comments. `module` is the path of the program's main
    module, "" if it is not known, as in a file.
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
    default_sample_type: str = ""
    """The type that viewers show first; "" for the last one."""
    account: Account | None = field(default=None, compare=False)
    module: str = field(default="", compare=False)
    has_length_labels: bool = field(default=False, compare=False)
    """Whether pprof files of it have the lengths of waits as labels (profile.length_labels)."""
    slices: Slices | None = field(default=None, compare=False)
    """Its samples by time, for a heatmap; None if they were not kept apart."""
    peers: tuple[PeerSamples, ...] = field(default=(), compare=False)
    """For which peers its handlers waited, as far as samples show."""

    def accounted(self, account: Account | None) -> Self:
        """A copy with this account and its comments; the profile itself for None."""
        if account is None:
            return self
        return replace(self, account=account, comments=account.comments())


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that goroutines waited for.

    `address` is the address of the sync.Mutex or sync.RWMutex, and `type` one of these names, or ""
    if the semaphore at `address` belongs to something else; it is 0 for several locks together.
    `name` is the name of its variable or field, None if unknown. `waits` are the stacks that waited
    for it, `releases` those that made others wait, with (count, nanoseconds). `still_waiting`
    are the stacks that wait at the end, with (goroutines, nanoseconds so far). `holds` is the
    number of holds of known length, `held_ns` their length together.
    """

    address: int
    type: str
    name: str | None
    waits: tuple[Sample, ...]
    releases: tuple[Sample, ...]
    holds: int
    held_ns: int
    still_waiting: tuple[Sample, ...] = ()
    hold_lengths: WaitHistogram = NO_LENGTHS
    """How long these holds were, as far as that is known."""

    @property
    def contentions(self) -> int:
        """How often a goroutine released it while others waited."""
        return sum(sample.values[0] for sample in self.releases)

    @property
    def delay_ns(self) -> int:
        """How long others waited for it until its release, in nanoseconds."""
        return sum(sample.values[1] for sample in self.releases)

    @property
    def release_lengths(self) -> WaitHistogram:
        """How long others waited until each release, as far as that is known."""
        return WaitHistogram.together(sample.lengths for sample in self.releases)

    @property
    def waiting_ns(self) -> int:
        """How long goroutines that still wait have waited so far, in nanoseconds."""
        return sum(sample.values[1] for sample in self.still_waiting)
