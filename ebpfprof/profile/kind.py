"""What a kind of profile is, to all that records, shows, serves and saves profiles.

A kind is declared once, in the folder of what records it (ebpfprof/profilers), and registered in
ebpfprof.profilers.registry. Everything else asks the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass
from typing import Any, Literal

from ebpfprof.profile.model import Mapping, Profile, Sample, ValueType

Values = AbstractMapping[str, Any]
"""Values of recording options, by Option.field."""


@dataclass(frozen=True, slots=True)
class Option:
    """A recording option of a kind: a number, or a switch if `default` is a bool.

    `flags` is what the command line calls it ("--hz", "--kernel/--no-kernel"). A number lies
    between `least` and `most`. An option that `chooses_events` says itself which events count:
    it can't be had together with --max-overhead.
    """

    field: str
    flags: str
    default: int | bool
    help: str
    metavar: str = ""
    least: int = 0
    most: int = (1 << 31) - 1
    chooses_events: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where net/http/pprof has the profile: /debug/pprof/NAME.

    With `seconds` a request records for so long unless it says otherwise, as `profile` does;
    without, it gets the sums since the process was first recorded, as `block` does. `delta` is the
    name under which godeltaprof has it, "" for none. `text` are the first lines of the legacy
    format (?debug=1); none if there is no such format.
    """

    name: str
    description: str
    seconds: int | None = None
    delta: str = ""
    text: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """The counter of Prometheus that the second value of samples adds to, in seconds.

    Kinds that share one have a label `kind` in it.
    """

    name: str
    help: str
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """How tables for people show samples: a row for each operation and caller, or each function.

    `value` and `count` are the headings of the two values, `place` that of the last column, from
    the longest wording to the shortest. `rate` is what the value is in a second: time that passes
    for several goroutines at once, or parts of a processor.
    """

    rows: Literal["operations", "functions"]
    value: str
    count: str
    place: tuple[str, ...]
    rate: Literal["time", "processors"] = "time"


@dataclass(frozen=True, slots=True)
class ProfileKind:
    """One kind of profile.

    Words: `name` is what the user types and files are called by; `title` stands before "profile";
    `subject` is what it shows ("Waits"), `summary` says so in a line; `heading` is the line above a
    table, with {process} and {length}; `events` are what it counts, in the plural; `nothing` says
    that there were none; `headline` introduces the largest place: "82 % of waiting: ...".

    `profiler` is the module that records it, with a function open_profiler(targets, options):
    kinds with the same one are recorded together. `key` is that of `top`.
    """

    name: str
    title: str
    subject: str
    summary: str
    heading: str
    events: str
    nothing: str
    headline: str
    sample_types: tuple[ValueType, ...]
    table: Table
    profiler: str
    key: str = ""
    endpoint: Endpoint | None = None
    metric: Metric | None = None
    options: tuple[Option, ...] = ()
    period_type: ValueType | None = None
    """What a profile's period is an amount of; None: of the first sample type."""
    sampling: Callable[[Values], str] = lambda _: "every event"
    """In words, which events these options record."""
    is_of: Callable[[Sequence[Sample]], bool] | None = None
    """Whether samples of these types are of this kind, where several kinds have the same types."""
    enabled_by: str = ""
    """The option (Option.field) that adds this kind to those chosen; "": --profile chooses it."""
    is_moment: bool = False
    """Whether it shows a moment, not a sum over the time that was recorded."""
    keeps_sums: bool = True
    """Whether the kernel keeps sums since the start, or adds up from when they are asked for."""
    needs_go: bool = True
    """Whether only Go programs have it."""
    is_windowed: bool = False
    """Whether targets are watched in windows where --max-overhead asks for that."""
    uses_probes: bool = True
    """Whether breakpoints are put into the target."""

    @property
    def is_chosen_by_name(self) -> bool:
        """Whether --profile offers it."""
        return not self.enabled_by

    def make_profile(
        self,
        samples: Iterable[Sample],
        mappings: Iterable[Mapping],
        *,
        period: int = 1,
        time_ns: int,
        duration_ns: int,
        comments: Iterable[str] = (),
    ) -> Profile:
        """A profile of this kind. Each sample has one value for each of the kind's sample types.

        One sample was taken in each `period`, an amount of `period_type`. `time_ns` is Unix time.
        """
        return Profile(
            kind=self.name,
            sample_types=self.sample_types,
            period_type=self.period_type or self.sample_types[0],
            period=period,
            samples=tuple(samples),
            mappings=tuple(mappings),
            time_ns=time_ns,
            duration_ns=duration_ns,
            comments=tuple(comments),
        )
