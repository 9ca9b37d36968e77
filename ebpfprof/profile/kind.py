"""What a kind of profile is to the code that records, shows, serves and saves profiles.

Each kind is declared once, in the folder of its profiler (ebpfprof/profilers), and registered in
ebpfprof.profilers.registry. All other code asks the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ebpfprof.profile.model import Location, Mapping, Profile, Sample, ValueType
from ebpfprof.settings.setting import Setting

ByStack = AbstractMapping[tuple[Location, ...], tuple[int, float]]
"""A number of each stack, and its variance."""
Values = AbstractMapping[str, Any]
"""Values of recording options, by Setting.name."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint of the profile in net/http/pprof: /debug/pprof/NAME.

    With `seconds`, a request records for so long unless it sets its own time, as `profile` does.
    Without, a request gets the sums since the first recording of the process, as `block` does.
    `delta` is the name of the endpoint in godeltaprof, "" for none. `text` has the first lines of
    the legacy format (?debug=1), () if there is no such format. With a `reader`, a module as
    ebpfprof.server.read_endpoint describes it, each request reads the process, whether or not the
    kind is recorded: it has Go's own ?debug=1 and 2.
    """

    name: str
    description: str
    seconds: int | None = None
    delta: str = ""
    text: tuple[str, ...] = ()
    reader: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """The Prometheus counter to which the second value of samples adds, in seconds.

    Kinds that share a counter set its label `kind`.
    """

    name: str
    help: str
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """How tables show samples: a row for each operation and caller, or for each function.

    `value` and `count` are the headings of the two values, `place` those of the last column, from
    the longest to the shortest. Without `count`, tables show neither the count nor the mean of an
    event: they say nothing of the program. Where samples are pairs of stacks (profile.wakers),
    `waker` are the headings of the column of what woke. `rate` is the unit of the value per second:
    "time" of several goroutines at once, or "processors".
    """

    rows: Literal["operations", "functions"]
    value: str
    count: str
    place: tuple[str, ...]
    waker: tuple[str, ...] = ()
    rate: Literal["time", "processors"] = "time"
    at_a_time: str = "goroutines waiting"
    """What nanoseconds per nanosecond are: goroutines that wait, or CPUs in use."""


@dataclass(frozen=True, slots=True)
class Loader:
    """What records one kind of profile or several: these are then recorded together.

    `module` has two functions: open_profiler(targets, options) and rights(options), as
    ebpfprof.profilers.recording says.
    """

    module: str
    needs_go: bool = True
    """Whether only Go programs have its kinds."""
    needs_bpf: bool = True
    """Whether a BPF program records them."""
    needs_probes: bool = False
    """Whether only probes in the program's code record them."""
    is_windowed: bool = False
    """Whether --max-overhead may record them in windows."""
    needs_all_samples: bool = False
    """Whether they are made of goroutine samples, as many as there are."""


@dataclass(frozen=True, slots=True)
class ProfileKind:
    """One kind of profile.

    Texts: the user types `name`, and file names contain it; `title` precedes "profile"; `subject`
    is what it shows ("Waits"), `summary` the same in a line; `heading` is the line above a table,
    with {process} and {length}; `events` is what it counts, in the plural; `nothing` says that
    there were no events; `headline` introduces the largest place: "82 % of waiting: ...".

    `loader` records it; kinds with the same one are recorded together. `key` selects the kind in
    `top`.
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
    loader: Loader
    key: str = ""
    endpoint: Endpoint | None = None
    metric: Metric | None = None
    options: tuple[Setting, ...] = ()
    """Its recording options: whole numbers and switches, with flags."""
    shown: tuple[int, int] = (0, -1)
    """Which of a sample's values tables show, by index: how many events, and how much of them."""
    default_sample_type: str = ""
    """What `go tool pprof` shows of a file first; "" for the last sample type."""
    period_type: ValueType | None = None
    """The type of a profile's period; None: the first sample type."""
    sampling: Callable[[Values], str] = lambda _: "every event"
    """Which events these options record, in words."""
    is_of: Callable[[Sequence[Sample]], bool] | None = None
    """Whether samples are of this kind, where several kinds have the same sample types."""
    growth: Callable[[Profile], ByStack] | None = None
    """Of a profile, by stack, bytes whose growth may be a leak, and their variance."""
    is_of_tracked_waits: bool = False
    """Whether it is recorded of one wait in eight, whatever the others are recorded of."""
    enabled_by: str = ""
    """The option (Setting.name) that adds this kind; "" if --profile selects it."""
    added_by: str = ""
    """A switch (Setting.name) that adds it to those that --profile selects; "" without one."""
    has_lengths: bool = False
    """Whether its samples have the lengths of their events (Sample.lengths)."""
    is_moment: bool = False
    """Whether it shows a moment, rather than sums over the recorded time."""
    of_moment: tuple[int, ...] = ()
    """Which of a sample's values are those of the moment in what was recorded since the last
    request (Endpoint.delta), too, by index: memory in use beside allocations."""
    is_total: bool = False
    """Whether its sums begin when the program started, whatever time was recorded."""
    series: str = ""
    """What user interfaces of backends know it as (the first part of Pyroscope's and Parca's names
    of profiles); "" for `name`."""
    is_default: bool = True
    """Whether it is recorded without --profile."""
    is_agent_default: bool = False
    """Whether the agent records it where its settings name no kinds."""
    coverage: str = ""
    """The class of the coverage of its accounts, MODULE:NAME, if it may be an estimate: a dataclass
    of numbers, texts, tuples and mappings, which files can hold."""

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

        There is one sample per `period`, an amount of `period_type`. `time_ns` is Unix time.
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
            default_sample_type=self.default_sample_type,
        )

    @property
    def has_amount(self) -> bool:
        """Whether tables show an amount, and not only how many events there were."""
        return len({index % len(self.sample_types) for index in self.shown}) > 1

    @property
    def unit(self) -> str:
        """The unit of the value that tables show."""
        return self.sample_types[self.shown[1]].unit

    def in_tables(self, profile: Profile) -> Profile:
        """A profile of this kind with no more values than tables show: how many, and how much."""
        types = profile.sample_types
        kept = list(dict.fromkeys(index % len(types) for index in self.shown))
        if kept == list(range(len(types))):
            return profile
        return replace(
            profile,
            sample_types=tuple(types[index] for index in kept),
            samples=tuple(
                replace(sample, values=tuple(sample.values[index] for index in kept))
                for sample in profile.samples
            ),
        )
