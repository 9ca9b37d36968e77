"""The rows of `ebpfprof top`: where time went since the last look, and since the start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ebpfprof.export.frametable import UNKNOWN
from ebpfprof.export.summary import rows_of
from ebpfprof.idle import Hidden, IdleRule, rule_of
from ebpfprof.losses import Loss
from ebpfprof.profile import Location, Lock, Profile, Sample

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

    `callees_ns` are those of a function with all that it called. `held_ns` is for how long a lock
    was held, the mean, None if that is not known. `number` is that of the row in its table.
    """

    key: RowKey
    number: int
    count: int
    ns: int
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


@dataclass(frozen=True, slots=True)
class TopStack:
    """A stack, with all since the start as its values; `count` and `ns` since the look before.

    `rows` are the numbers of the rows that it belongs to.
    """

    rows: tuple[int, ...]
    role: Role
    sample: Sample
    count: int
    ns: int


@dataclass(frozen=True, slots=True)
class Reading:
    """All rows and stacks of a table at one moment; `window_ns` is the time since the last one."""

    view: View
    window_ns: int
    rows: Sequence[TopRow] = ()
    stacks: Sequence[TopStack] = ()

    @property
    def count(self) -> int:
        """Events since the look before, idle ones with them."""
        return sum(row.count for row in self.rows)

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
    """What was recorded of one target since the start; no profile where it can't have that one."""

    pid: int
    profile: Profile | None
    locks: Sequence[Lock] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows to show, sorted; of what was left out, `hidden` is what was idle.

    `all_ns` is the time of all rows that are not idle, or of all if these are shown; `matched` of
    how many rows the pattern left some out.
    """

    rows: Sequence[TopRow]
    hidden: Sequence[Hidden]
    all_ns: int
    matched: int


def shown(
    reading: Reading,
    *,
    sort: Sort = "delay",
    reverse: bool = False,
    pattern: re.Pattern[str] | None = None,
    hide_idle: bool = True,
) -> Shown:
    """Choose and sort the rows of a reading; the largest first, names from A, unless `reverse`."""
    hidden: dict[str, Hidden] = {}
    kept = []
    for row in reading.rows:
        rule = row.key.idle
        if rule is None or not hide_idle:
            kept.append(row)
        elif row.count:
            known = hidden.get(rule.name, Hidden(rule, 0, 0))
            hidden[rule.name] = Hidden(rule, known.count + row.count, known.delay_ns + row.ns)
    all_ns = sum(row.ns for row in kept)
    matching = [row for row in kept if row.key.matches(pattern)] if pattern else kept
    matching.sort(key=_by_name)  # equal ones keep their places
    if sort != "name":
        keys = {"delay": _by_delay, "count": _by_count, "mean": _by_mean}
        key = _by_callees if reading.view == "cpu" and sort == "count" else keys[sort]
        matching.sort(key=key, reverse=True)
    if reverse:
        matching.reverse()
    by_delay = sorted(hidden.values(), key=lambda each: (-each.delay_ns, each.rule.name))
    return Shown(matching, by_delay, all_ns, len(kept))


class Table:
    """The rows of one view. Remembers what was seen at the look before."""

    def __init__(self, view: View, started_ns: int) -> None:
        """`started_ns` is when the recording began, by the clock of read()."""
        self._view: Final = view
        self._read_ns = started_ns
        self._stacks: dict[object, _Known] = {}
        self._locations: dict[Location, int] = {}
        self._functions: dict[int, dict[int, tuple[int, ...]]] = {}  # see _functions_of
        self._numbers: dict[RowKey, int] = {}
        self._keys: list[RowKey] = []
        self._locks: dict[tuple[int, int], int] = {}  # numbers by pid and address
        self._holds: dict[int, tuple[int, int]] = {}  # by number of the row

    def read(self, snapshots: Sequence[Snapshot], now_ns: int) -> Reading:
        """The rows at the time `now_ns`, of sums since the start that never decrease.

        Snapshots that share their Location objects are quick to read.
        """
        held: dict[int, float | None] = {}
        stacks = [stack for snapshot in snapshots for stack in self._of_target(snapshot, held)]
        rows = self._rows(stacks, held)
        window_ns, self._read_ns = now_ns - self._read_ns, now_ns
        return Reading(self._view, window_ns, rows, stacks)

    def _of_target(self, snapshot: Snapshot, held: dict[int, float | None]) -> Iterator[TopStack]:
        pid = snapshot.pid
        if self._view != "locks":
            if snapshot.profile:
                yield from self._changed(pid, 0, "", snapshot.profile.samples, None)
            return
        for lock in snapshot.locks:
            number = self._number_of_lock(pid, lock)
            by_role: tuple[tuple[Role, Sequence[Sample]], ...] = (
                ("released", lock.releases),
                ("waited for", lock.waits),
                ("still waited for", lock.still_waiting),
            )
            for role, samples in by_role:
                yield from self._changed(pid, lock.address, role, samples, (number,))
            held[number] = self._mean_hold(number, lock)

    def _changed(
        self,
        pid: int,
        address: int,
        role: Role,
        samples: Iterable[Sample],
        rows: tuple[int, ...] | None,
    ) -> Iterator[TopStack]:
        """The samples with what is new in them; `rows` are theirs, unless each has its own."""
        # Hashing a location goes through all its frames: once for each object is enough.
        by_id: dict[int, int] = {}
        known_stacks, locations = self._stacks, self._locations
        for sample in samples:
            stack = []
            for location in sample.locations:
                number = by_id.get(id(location))
                if number is None:
                    number = locations.setdefault(location, len(locations))
                    by_id[id(location)] = number
                stack.append(number)
            key = (pid, address, role, *stack, sample.labels)
            known = known_stacks.get(key)
            if known is None:
                known = _Known(self._rows_of(pid, sample, stack) if rows is None else rows)
                known_stacks[key] = known
            count, ns = sample.values[0], sample.values[-1]
            yield TopStack(known.rows, role, sample, count - known.count, ns - known.ns)
            known.count, known.ns = count, ns

    def _rows_of(self, pid: int, sample: Sample, stack: Sequence[int]) -> tuple[int, ...]:
        """The numbers of the rows that a stack belongs to: the first one's is its own time."""
        if self._view == "cpu":
            return self._functions_of(pid, sample, stack)
        (row,) = rows_of([sample], 1)
        rule = rule_of("block", sample) if self._view == "block" else None
        key = RowKey(pid, row.operation, row.function, row.file, row.line, rule)
        return (self._number(key),)

    def _functions_of(self, pid: int, sample: Sample, stack: Sequence[int]) -> tuple[int, ...]:
        """Each function once, however often it called itself; `stack` has the locations' numbers.

        What is in one place is looked up once: stacks are many and deep, their places few.
        """
        known = self._functions.setdefault(pid, {})
        rows: list[int] = []
        for at, location in zip(stack, sample.locations, strict=True):
            numbers = known.get(at)
            if numbers is None:
                keys = [RowKey(pid, "", f.function, f.file) for f in location.frames]
                numbers = known[at] = tuple(map(self._number, keys))
            rows += numbers
        return tuple(dict.fromkeys(rows)) or (self._number(RowKey(pid, "", UNKNOWN)),)

    def _number(self, key: RowKey) -> int:
        number = self._numbers.setdefault(key, len(self._keys))
        if number == len(self._keys):
            self._keys.append(key)
        return number

    def _number_of_lock(self, pid: int, lock: Lock) -> int:
        """By its address: two locks may have one name, and a name may be found later."""
        operation = lock.type or "semaphore"
        name = lock.name or f"{operation} at {lock.address:#x}"
        number = self._locks.setdefault((pid, lock.address), len(self._keys))
        key = RowKey(pid, operation, name, address=lock.address)
        self._keys[number : number + 1] = [key]
        return number

    def _mean_hold(self, number: int, lock: Lock) -> float | None:
        holds, held_ns = self._holds.get(number, (0, 0))
        self._holds[number] = lock.holds, lock.held_ns
        if lock.holds > holds:
            return (lock.held_ns - held_ns) / (lock.holds - holds)
        return lock.held_ns / lock.holds if lock.holds else None

    def _rows(self, stacks: Iterable[TopStack], held: Mapping[int, float | None]) -> list[TopRow]:
        sums = [[0, 0, 0, 0, 0, 0] for _ in self._keys]
        for stack in stacks:
            if not stack.rows or stack.role not in ("", _RELEASED):
                continue
            values = stack.sample.values
            row = sums[stack.rows[0]]
            row[0] += stack.count
            row[1] += stack.ns
            row[2] += values[0]
            row[3] += values[-1]
            if self._view == "cpu":
                for number in stack.rows:
                    sums[number][4] += stack.ns
                    sums[number][5] += values[-1]
        return [
            TopRow(
                key=self._keys[number],
                number=number,
                count=count,
                ns=ns,
                total_count=total_count,
                total_ns=total_ns,
                callees_ns=callees_ns,
                total_callees_ns=total_callees_ns,
                held_ns=held.get(number),
            )
            for number, (
                count,
                ns,
                total_count,
                total_ns,
                callees_ns,
                total_callees_ns,
            ) in enumerate(sums)
            if total_count or total_callees_ns or number in held
        ]


@dataclass(slots=True)
class _Known:
    """A stack at the look before."""

    rows: tuple[int, ...]
    count: int = 0
    ns: int = 0


def _by_name(row: TopRow) -> tuple[str, str, int, int]:
    return row.key.name, row.key.operation, row.key.line, row.key.pid


def _by_delay(row: TopRow) -> tuple[float, float]:
    return row.ns, row.total_ns


def _by_count(row: TopRow) -> tuple[float, float]:
    return row.count, row.total_count


def _by_callees(row: TopRow) -> tuple[float, float]:
    return row.callees_ns, row.total_callees_ns


def _by_mean(row: TopRow) -> tuple[float, float]:
    return (row.mean_ns if row.count else 0.0), row.mean_ns
