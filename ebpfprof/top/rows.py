"""What `ebpfprof top` shows at a moment: rows, stacks, rates; which of the rows, in which order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ebpfprof.kernel.losses import Loss
from ebpfprof.profile.idle import IdleRule
from ebpfprof.profile.model import Lock, Profile, Sample

View = Literal["block", "mutex", "cpu", "locks"]
"""What the rows are: places that wait, places that make others wait, functions, or locks."""

Sort = Literal["delay", "count", "mean", "name"]
"""By what rows are sorted; of CPU time, "count" is that of a function with all it calls."""

Role = Literal["", "released", "waited for", "still waited for"]
"""What a stack did to a lock; "" where the rows are no locks."""

_RELEASED: Final = "released"


@dataclass(frozen=True, slots=True)
class RowKey:
    """What all stacks of a row have in common.

    `name` is a function or a lock, `address` that of the lock. Text is as the target has it: not
    fit for a terminal before text.printable(). `idle` is the rule by which it waits for work only.
    """

    pid: int
    operation: str
    name: str
    file: str = ""
    line: int = 0
    idle: IdleRule | None = None
    address: int = 0

    @property
    def place(self) -> str:
        """The file, without its folders, and the line, or a lock's address; "" if not known."""
        if self.address:
            return f"{self.address:#x}"
        if not self.file:
            return ""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if self.line else name

    def matches(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern is found in the operation, the name or the place."""
        return pattern.search(f"{self.operation} {self.name} {self.place}") is not None


@dataclass(frozen=True, slots=True)
class TopRow:
    """A row: events and nanoseconds since the look before, and since the start (`total_`).

    `window_ns` is for how long its target was recorded since the look before. `callees_ns` are
    those of a function with all that it called. `held_ns` is for how long a lock was held, the
    mean, None if that is not known. `number` is that of the row in its table.
    """

    key: RowKey
    number: int
    count: int
    ns: int
    window_ns: int
    total_count: int
    total_ns: int
    callees_ns: int = 0
    total_callees_ns: int = 0
    held_ns: float | None = None

    @property
    def mean_ns(self) -> float:
        """Mean of one event since the look before; since the start if there was none."""
        if self.count:
            return self.ns / self.count
        return self.total_ns / self.total_count if self.total_count else 0.0

    @property
    def rate(self) -> float:
        """Seconds of delay, or of CPU time, in a second."""
        return rate(self.ns, self.window_ns)

    @property
    def callees_rate(self) -> float:
        """Seconds of CPU time in a second, with all that the function called."""
        return rate(self.callees_ns, self.window_ns)

    @property
    def count_per_s(self) -> float:
        """Events in a second."""
        return rate(self.count, self.window_ns / 1e9)


@dataclass(frozen=True, slots=True)
class TopStack:
    """A stack, with all since the start as its values; `count` and `ns` since the look before.

    `window_ns` is how long that is; `rows` are the numbers of the rows that it belongs to.
    """

    rows: tuple[int, ...]
    role: Role
    sample: Sample
    count: int
    ns: int
    window_ns: int

    @property
    def rate(self) -> float:
        """Seconds of delay, or of CPU time, in a second."""
        return rate(self.ns, self.window_ns)

    @property
    def count_per_s(self) -> float:
        """Events in a second."""
        return rate(self.count, self.window_ns / 1e9)


@dataclass(frozen=True, slots=True)
class Reading:
    """All rows and stacks of a table at one moment.

    `window_ns` is the time that the rates are of: of several targets the longest.
    """

    view: View
    window_ns: int
    rows: Sequence[TopRow] = ()
    stacks: Sequence[TopStack] = ()

    @property
    def count_per_s(self) -> float:
        """Events in a second, idle ones with them."""
        return sum(row.count_per_s for row in self.rows)

    def stacks_of(self, number: int) -> list[TopStack]:
        """The stacks of a row, those that waited longest since the look before first."""
        found = [stack for stack in self.stacks if number in stack.rows]
        found.sort(key=lambda stack: (stack.role, -stack.ns, -stack.sample.values[-1]))
        return found


@dataclass(frozen=True, slots=True)
class Watched:
    """A target, in words; `ending` is why it went, "" while it runs."""

    pid: int
    name: str
    go_version: str
    ending: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """All there is to show at one moment.

    `uptime_ns` is for how long was recorded, `own_cpu` which part of one processor ebpfprof itself
    used since the moment before, `notes` are sentences about what is missing.
    """

    readings: Mapping[View, Reading]
    targets: Sequence[Watched]
    uptime_ns: int
    own_cpu: float
    losses: Sequence[Loss] = ()
    notes: Sequence[str] = ()
    lost_share: float = 0.0
    """The part of their CPU time that the targets lost to this since the start, 0 to 1."""
    watched_share: float = 1.0
    """The part of the time in which waits were watched, of the target where it is the least."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was recorded of one target since the start; no profile where it can't have that one.

    `recorded_ns` is the time that the sums are of: how long it was recorded when they were read, or
    what its windows stand for. `is_over`: it has ended, nothing comes any more.
    """

    pid: int
    recorded_ns: int
    profile: Profile | None
    locks: Sequence[Lock] = ()
    is_over: bool = False


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
    """How much there was of something in one unit of the time that it is of; 0 if that was none."""
    return amount / window if window > 0 else 0.0


def shown(
    reading: Reading,
    *,
    sort: Sort = "delay",
    reverse: bool = False,
    pattern: re.Pattern[str] | None = None,
    hide_idle: bool = True,
) -> Shown:
    """Choose and sort the rows of a reading; the largest first, names from A, unless `reverse`."""
    hidden: dict[str, HiddenRate] = {}
    kept = []
    for row in reading.rows:
        rule = row.key.idle
        if rule is None or not hide_idle:
            kept.append(row)
        elif row.count:
            known = hidden.get(rule.name, HiddenRate(rule, 0.0, 0.0))
            count_per_s = known.count_per_s + row.count_per_s
            hidden[rule.name] = HiddenRate(rule, count_per_s, known.rate + row.rate)
    all_rows = sum(row.rate for row in kept)
    matching = [row for row in kept if row.key.matches(pattern)] if pattern else kept
    matching.sort(key=_by_name)  # equal ones keep their places
    if sort != "name":
        keys = {"delay": _by_delay, "count": _by_count, "mean": _by_mean}
        key = _by_callees if reading.view == "cpu" and sort == "count" else keys[sort]
        matching.sort(key=key, reverse=True)
    if reverse:
        matching.reverse()
    by_delay = sorted(hidden.values(), key=lambda each: (-each.rate, each.rule.name))
    return Shown(matching, by_delay, all_rows, len(kept))


def _by_name(row: TopRow) -> tuple[str, str, int, int]:
    return row.key.name, row.key.operation, row.key.line, row.key.pid


def _by_delay(row: TopRow) -> tuple[float, float]:
    return row.rate, row.total_ns


def _by_count(row: TopRow) -> tuple[float, float]:
    return row.count_per_s, row.total_count


def _by_callees(row: TopRow) -> tuple[float, float]:
    return row.callees_rate, row.total_callees_ns


def _by_mean(row: TopRow) -> tuple[float, float]:
    return (row.mean_ns if row.count else 0.0), row.mean_ns
