"""What `ebpfprof top` shows at a moment: rows, stacks, rates; which of the rows, in which order."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ebpfprof.profile.evidence import is_ranked
from ebpfprof.profile.idle import IdleRule
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Lock, Profile, Sample
from ebpfprof.profile.wait_histogram import NO_LENGTHS, QUANTILES, Quantile, WaitHistogram
from ebpfprof.top.views import view_named

Sort = Literal["delay", "count", "mean", "name"]
"""By what rows are sorted; functions by "count": by their values with those of all they call."""

Role = Literal["", "released", "waited for", "still waited for"]
"""What a stack did to a lock; "" where the rows are no locks."""


@dataclass(frozen=True, slots=True)
class RowKey:
    """What all stacks of a row have in common.

    `name` is a function or a lock, `address` that of the lock. Text is as the target has it: not
    fit for a terminal before text.printable(). `idle` is the rule by which it waits for work only.
    `program` is the innermost function of the program's main module, if `name` is a library's;
    `waker` what woke its goroutines, where samples are pairs (profile.wakers).
    """

    pid: int
    operation: str
    name: str
    file: str = ""
    line: int = 0
    idle: IdleRule | None = None
    address: int = 0
    program: str = ""
    waker: str = ""

    @property
    def place(self) -> str:
        """The file, without its folders, and the line, or a lock's address; "" if not known."""
        if self.address:
            return f"{self.address:#x}"
        name = self.file.rpartition("/")[2]
        place = f"{name}:{self.line}" if name and self.line else name
        if self.waker:
            place = f"{place} woken by {self.waker}".lstrip()
        return f"{place} from {self.program}" if self.program and name else place

    def matches(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern is found in the operation, the name or the place."""
        return pattern.search(f"{self.operation} {self.name} {self.place}") is not None


@dataclass(frozen=True, slots=True)
class TopRow:
    """A row: events and their values since the sample before, and since the start (`total_`).

    Values are the last ones of samples: nanoseconds, unless the kind's are something else. Those
    of a moment are all new in each sample. `variance` and `total_variance` are those of `value` and
    `total_value` where they are estimates, else 0. `window_ns` is for how long the row's target was
    recorded since the sample before, one second for a moment. `callees` is the value of a function
    with all that it called. `held_ns` is for how long a lock was held, the mean, None if that is
    not known.
    `number` is that of the row in its table.
    """

    key: RowKey
    number: int
    count: int
    value: int
    window_ns: int
    total_count: int
    total_value: int
    callees: int = 0
    total_callees: int = 0
    held_ns: float | None = None
    variance: float = 0.0
    total_variance: float = 0.0
    count_variance: float = 0.0
    """That of `count`, where it is an estimate."""
    total_count_variance: float = 0.0
    """That of `total_count`, where it is an estimate."""
    lengths: WaitHistogram = NO_LENGTHS
    """How long its waits since the start were, as far as that is known."""
    hold_lengths: WaitHistogram = NO_LENGTHS
    """How long a lock was held since the start, as far as that is known."""
    is_unknown: bool = False
    """Whether it stands for releases that were not recorded, or for a lock with many of them: the
    count and means say nothing."""

    @property
    def error(self) -> float:
        """The standard error of the value, as a part of it; 0 for one that is exact, or for 0."""
        return math.sqrt(self.variance) / self.value if self.value > 0 else 0.0

    @property
    def count_error(self) -> float:
        """The standard error of the count, as a part of it; 0 for one that is exact, or for 0."""
        return math.sqrt(self.count_variance) / self.count if self.count > 0 else 0.0

    @property
    def is_ranked(self) -> bool:
        """Whether the value is known well enough for a rank and a share (profile.evidence)."""
        return is_ranked(self.value, self.variance)

    @property
    def total_error(self) -> float:
        """The same of the value since the start."""
        total = self.total_value
        return math.sqrt(self.total_variance) / total if total > 0 else 0.0

    @property
    def mean(self) -> float:
        """The mean value of an event since the sample before; since the start if there was none."""
        if self.count:
            return self.value / self.count
        return self.total_value / self.total_count if self.total_count else 0.0

    def quantile(self, name: str) -> Quantile | None:
        """One of QUANTILES of the lengths of its waits since the start; None if it is not known."""
        estimate = self.lengths.quantile(
            QUANTILES[name], waits=self.total_count, variance=self.total_count_variance
        )
        return estimate if estimate and estimate.is_known else None

    def hold_quantile(self, name: str) -> Quantile | None:
        """One of QUANTILES of how long a lock was held; None if it is not known."""
        found = None if self.is_unknown else self.hold_lengths.quantile(QUANTILES[name])
        return found if found and found.is_known else None

    @property
    def rate(self) -> float:
        """The value in a second: in seconds, or in 1e9 of the kind's unit."""
        return rate(self.value, self.window_ns)

    @property
    def callees_rate(self) -> float:
        """The same of a function with all that it called."""
        return rate(self.callees, self.window_ns)

    @property
    def count_per_s(self) -> float:
        """Events in a second."""
        return rate(self.count, self.window_ns / 1e9)


@dataclass(frozen=True, slots=True)
class TopStack:
    """A stack, with all since the start as its values; `count` and `value` since the sample before.

    `window_ns` is how long that is; `rows` are the numbers of the rows that it belongs to.
    """

    rows: tuple[int, ...]
    role: Role
    sample: Sample
    count: int
    value: int
    window_ns: int
    variance: float = 0.0
    """That of `value` where it is an estimate."""
    count_variance: float = 0.0
    """The same of `count`."""

    @property
    def error(self) -> float:
        """The standard error of the value, as a part of it; 0 for one that is exact, or for 0."""
        return math.sqrt(self.variance) / self.value if self.value > 0 else 0.0

    @property
    def count_error(self) -> float:
        """The same of the count."""
        return math.sqrt(self.count_variance) / self.count if self.count > 0 else 0.0

    @property
    def total_count_error(self) -> float:
        """The same of the count since the start."""
        total = self.sample.values[0]
        return math.sqrt(self.sample.count_variance) / total if total > 0 else 0.0

    @property
    def total_error(self) -> float:
        """The same of the value since the start."""
        total = self.sample.values[-1]
        return math.sqrt(self.sample.variance) / total if total > 0 else 0.0

    @property
    def rate(self) -> float:
        """The value in a second: in seconds, or in 1e9 of the kind's unit."""
        return rate(self.value, self.window_ns)

    @property
    def count_per_s(self) -> float:
        """Events in a second."""
        return rate(self.count, self.window_ns / 1e9)


@dataclass(frozen=True, slots=True)
class Reading:
    """All rows and stacks of a view at one moment.

    `window_ns` is the time that the rates are of: of several targets the longest.
    """

    view: str
    window_ns: int
    rows: Sequence[TopRow] = ()
    stacks: Sequence[TopStack] = ()

    @property
    def count_per_s(self) -> float:
        """Events in a second, idle ones with them."""
        return sum(row.count_per_s for row in self.rows)

    def stacks_of(self, number: int) -> list[TopStack]:
        """The stacks of a row, the largest value since the sample before first."""
        stacks = [stack for stack in self.stacks if number in stack.rows]
        stacks.sort(key=lambda stack: (stack.role, -stack.value, -stack.sample.values[-1]))
        return stacks


@dataclass(frozen=True, slots=True)
class TargetLine:
    """A target as the title names it; `ending` is why it went, "" while it runs."""

    pid: int
    name: str
    go_version: str
    ending: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """All there is to show at one moment; `readings` by view.

    `uptime_ns` is for how long was recorded, `own_cpu` which part of one processor ebpfprof itself
    used since the moment before, `notes` are sentences about what is missing.
    """

    readings: Mapping[str, Reading]
    targets: Sequence[TargetLine]
    uptime_ns: int
    own_cpu: float
    losses: Sequence[Loss] = ()
    notes: Sequence[str] = ()
    overhead_share: float = 0.0
    """The part of their CPU time that the targets lost to this since the start, 0 to 1."""
    recorded_share: float = 1.0
    """The part of the time in which waits were recorded, of the target where it is the least."""
    tracing: str = ""
    """Which trace is recorded beside the profiles; "" for none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was recorded of one target since the start; no profile where it can't have that one.

    `recorded_ns` is the time that the sums are of: how long it was recorded when they were read, or
    the time that its windows stand for. `is_over`: it has ended, so the sums are the last ones.
    """

    pid: int
    recorded_ns: int
    profile: Profile | None
    locks: Sequence[Lock] = ()
    is_over: bool = False
    handlers: Sequence[str] | None = None
    """The handler of each sample of the profile (tables.handlers.handler_name): rows of operations
    are of handlers then, not of the lines that called."""


@dataclass(frozen=True, slots=True)
class HiddenRate:
    """What was left out by one rule: events and seconds of delay in a second."""

    rule: IdleRule
    count_per_s: float
    rate: float


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows to show, sorted; of what was left out, `hidden` is what was idle.

    `rate` is that of all rows that are not idle, or of all if these are shown; `matched` of how
    many rows the pattern left some out.
    """

    rows: Sequence[TopRow]
    hidden: Sequence[HiddenRate]
    rate: float
    matched: int


def rate(amount: float, window: float) -> float:
    """How much of something there was in one unit of its window; 0 if the window is empty."""
    return amount / window if window > 0 else 0.0


def shown(
    reading: Reading,
    *,
    sort: Sort = "delay",
    reverse: bool = False,
    pattern: re.Pattern[str] | None = None,
    hide_idle: bool = True,
) -> Shown:
    """Choose and sort the rows of a reading; the largest first, names from A, unless `reverse`.

    By delay, rows without a rank (profile.evidence) come last; `rate` is without them.
    """
    hidden: dict[str, HiddenRate] = {}
    kept = []
    for row in reading.rows:
        rule = row.key.idle
        if rule is None or not hide_idle:
            kept.append(row)
        elif row.count or row.value:
            known = hidden.get(rule.name, HiddenRate(rule, 0.0, 0.0))
            count_per_s = known.count_per_s + row.count_per_s
            hidden[rule.name] = HiddenRate(rule, count_per_s, known.rate + row.rate)
    all_rows = sum(row.rate for row in kept if row.is_ranked)
    matching = [row for row in kept if row.key.matches(pattern)] if pattern else kept
    matching.sort(key=_by_name)  # equal ones keep their places
    if sort != "name":
        keys = {"delay": _by_delay, "count": _by_count, "mean": _by_mean}
        is_of_functions = view_named(reading.view).rows == "functions"
        key = _by_callees if is_of_functions and sort == "count" else keys[sort]
        matching.sort(key=key, reverse=True)
    if reverse:
        matching.reverse()
    if sort == "delay":
        matching.sort(key=lambda row: not row.is_ranked)
    by_delay = sorted(hidden.values(), key=lambda row: (-row.rate, row.rule.name))
    return Shown(matching, by_delay, all_rows, len(kept))


def _by_name(row: TopRow) -> tuple[str, str, int, int]:
    return row.key.name, row.key.operation, row.key.line, row.key.pid


def _by_delay(row: TopRow) -> tuple[float, float]:
    return row.rate, row.total_value


def _by_count(row: TopRow) -> tuple[float, float]:
    return row.count_per_s, row.total_count


def _by_callees(row: TopRow) -> tuple[float, float]:
    return row.callees_rate, row.total_callees


def _by_mean(row: TopRow) -> tuple[float, float]:
    return (row.mean if row.count else 0.0), row.mean
