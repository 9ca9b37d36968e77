"""The profile as every exporter sees it: samples, stacks, mappings. Knows nothing of BPF.

The shapes are those of profile.proto with references in place of ids. Equal objects are the
same object to an exporter, so a producer should make each Location once and share it: that is
also what makes encoding fast.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from ebpfprof.errors import InvalidProfile

Kind = str
"""What was profiled, by ProfileKind.name; "" is a profile of something else, read from a file."""

_INT64_MAX = (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1


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


CONTENTIONS = ValueType("contentions", "count")
DELAY = ValueType("delay", "nanoseconds")
GOROUTINES = ValueType("goroutines", "count")
WAITING = ValueType("waiting", "nanoseconds")
SAMPLES = ValueType("samples", "count")
CPU = ValueType("cpu", "nanoseconds")


def wait_profile(
    kind: Kind,
    samples: Iterable[Sample],
    mappings: Iterable[Mapping],
    *,
    time_ns: int,
    duration_ns: int,
    comments: Iterable[str] = (),
) -> Profile:
    """A block or mutex profile with the types of Go's own, or one of the waits still open.

    See runtime/pprof/pprof.go, printCountCycleProfile. Each sample's values are (contentions,
    delay in nanoseconds), or (goroutines, nanoseconds waited so far).
    """
    sample_types = (GOROUTINES, WAITING) if kind == "open" else (CONTENTIONS, DELAY)
    return Profile(
        kind=kind,
        sample_types=sample_types,
        period_type=sample_types[0],
        period=1,
        samples=tuple(samples),
        mappings=tuple(mappings),
        time_ns=time_ns,
        duration_ns=duration_ns,
        comments=tuple(comments),
    )


def cpu_profile(
    samples: Iterable[Sample],
    mappings: Iterable[Mapping],
    *,
    period_ns: int,
    time_ns: int,
    duration_ns: int,
    comments: Iterable[str] = (),
) -> Profile:
    """A CPU profile with the types of Go's own (runtime/pprof/proto.go, newProfileBuilder).

    Each sample's values are (samples, CPU time in nanoseconds); a sample stands for `period_ns`.
    """
    return Profile(
        kind="cpu",
        sample_types=(SAMPLES, CPU),
        period_type=CPU,
        period=period_ns,
        samples=tuple(samples),
        mappings=tuple(mappings),
        time_ns=time_ns,
        duration_ns=duration_ns,
        comments=tuple(comments),
    )


def check(profile: Profile) -> None:
    """Check what every exporter relies on.

    Stricter than pprof's own CheckValid: also rejects what only other readers (Parca,
    Pyroscope, Alloy) refuse or mistake. Raises InvalidProfile, naming the first fault.
    """
    _check_header(profile)
    for mapping in profile.mappings:
        _check_mapping(mapping)
    if len(set(profile.mappings)) != len(profile.mappings):
        raise InvalidProfile("A mapping stands in the table twice.")
    known = set(profile.mappings)
    seen: set[Location] = set()
    for sample in profile.samples:
        if len(sample.values) != len(profile.sample_types):
            raise InvalidProfile(
                f"A sample has {len(sample.values)} values for "
                f"{len(profile.sample_types)} sample types."
            )
        if any(not -_INT64_MAX <= value <= _INT64_MAX for value in sample.values):
            raise InvalidProfile(f"A sample's values {sample.values} do not fit 64 bits.")
        _check_labels(sample)
        for location in sample.locations:
            if location not in seen:
                _check_location(location, known)
                seen.add(location)


def _check_header(profile: Profile) -> None:
    if not profile.sample_types:
        raise InvalidProfile("The profile has no sample types.")
    names = [value_type.type for value_type in profile.sample_types]
    if len(set(names)) != len(names):
        raise InvalidProfile(f"Two sample types have the same name: {', '.join(names)}.")
    for value_type in (*profile.sample_types, profile.period_type):
        if not value_type.type or not value_type.unit:
            raise InvalidProfile("A sample type or the period type lacks its name or unit.")
        if "-" in value_type.type:
            raise InvalidProfile(f"The type {value_type.type!r} holds a hyphen.")
    for name in ("period", "time_ns", "duration_ns"):
        if not 0 <= getattr(profile, name) <= _INT64_MAX:
            raise InvalidProfile(f"{name} is {getattr(profile, name)}.")


def _check_mapping(mapping: Mapping) -> None:
    if not 0 <= mapping.start < mapping.limit <= _UINT64_MAX:
        raise InvalidProfile(
            f"The mapping {mapping.start:#x}-{mapping.limit:#x} is empty or upside down."
        )
    if not 0 <= mapping.offset <= _UINT64_MAX:
        raise InvalidProfile(f"The mapping's file offset {mapping.offset:#x} is out of range.")


def _check_labels(sample: Sample) -> None:
    for label in sample.labels:
        if not label.key:
            raise InvalidProfile("A label has no key.")
        if label.value in ("", 0) and not label.unit:
            raise InvalidProfile(f"pprof would drop the empty label {label.key!r}.")
        if isinstance(label.value, str) and label.unit:
            raise InvalidProfile(f"The label {label.key!r} is a string and has a unit.")
        if isinstance(label.value, int) and not -_INT64_MAX <= label.value <= _INT64_MAX:
            raise InvalidProfile(f"The label {label.key!r} does not fit 64 bits.")


def _check_location(location: Location, mappings: set[Mapping]) -> None:
    address, mapping = location.address, location.mapping
    if not 0 < address <= _UINT64_MAX:
        raise InvalidProfile(f"A location has the address {address:#x}.")
    if mapping is not None:
        if mapping not in mappings:
            raise InvalidProfile(f"The mapping of the address {address:#x} is not in the table.")
        if not mapping.start <= address < mapping.limit:
            raise InvalidProfile(f"The address {address:#x} lies outside its mapping.")
    for frame in location.frames:
        if not frame.function:
            raise InvalidProfile(f"A frame at {address:#x} has no function name.")
        if not (0 <= frame.line <= _INT64_MAX and 0 <= frame.start_line <= _INT64_MAX):
            raise InvalidProfile(f"A frame at {address:#x} has a line out of range.")
