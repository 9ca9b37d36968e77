"""The rows of `ebpfprof top`: where time went since the last sample, and since the start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ebpfprof.export.go_quotes import readable
from ebpfprof.profile.evidence import are_releases_known, is_unknown_release
from ebpfprof.profile.idle import rule_of
from ebpfprof.profile.model import UNKNOWN, Location, Lock, Sample
from ebpfprof.profile.operations import frame_of_program, is_of_program, operation_of
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from ebpfprof.profile.wakers import waiter_of, waker_of
from ebpfprof.top.rows import Reading, Role, RowKey, Snapshot, TopRow, TopStack
from ebpfprof.top.views import view_named

_ONE_SECOND_NS: Final = 1_000_000_000
_RELEASED: Final = "released"


class TopTable:
    """The rows of one view, by name. Remembers what was seen in the sample before."""

    def __init__(self, view: str) -> None:
        self._view: Final = view_named(view)
        self._is_moment: Final = self._view.kind.is_moment
        self._read: dict[int, _Read] = {}  # by pid
        self._stacks: dict[object, _Known] = {}
        self._locations: dict[Location, int] = {}
        self._module = ""  # the main module of the program whose samples are added
        self._functions: dict[int, dict[int, tuple[int, ...]]] = {}  # see _functions_of
        self._numbers: dict[RowKey, int] = {}
        self._keys: list[RowKey] = []
        self._locks: dict[tuple[int, int], int] = {}  # numbers by pid and address
        self._unknown: set[int] = set()  # numbers of rows: see TopRow.is_unknown
        self._holds: dict[int, tuple[int, int]] = {}  # by number of the row

    def read(self, snapshots: Sequence[Snapshot]) -> Reading:
        """The rows now, of sums since the start that never decrease, or of a moment.

        Sums of the same time as in the sample before had no window since: the rates of then are the
        last ones that are known. Snapshots that share their Location objects are quick to read.
        """
        self._read.update({snapshot.pid: self._of_target(snapshot) for snapshot in snapshots})
        reads = [self._read[snapshot.pid] for snapshot in snapshots]
        stacks = [stack for read in reads for stack in read.stacks]
        held = {number: held for read in reads for number, held in read.held.items()}
        window_ns = max((read.window_ns for read in reads), default=0)
        return Reading(self._view.name, window_ns, self._rows(stacks, held), stacks)

    def _of_target(self, snapshot: Snapshot) -> _Read:
        """What is new of a target, and since when."""
        before = self._read.get(snapshot.pid, _Read())
        window_ns = snapshot.recorded_ns - before.recorded_ns
        if self._is_moment:  # each sample is new, and its values are those of one second
            window_ns = _ONE_SECOND_NS
        if window_ns <= 0 and not snapshot.is_over:
            return before
        held: dict[int, _Held] = {}
        stacks = list(self._new_stacks(snapshot, max(window_ns, 0), held))
        return _Read(snapshot.recorded_ns, window_ns, stacks, held)

    def _new_stacks(
        self, snapshot: Snapshot, window_ns: int, held: dict[int, _Held]
    ) -> Iterator[TopStack]:
        pid = snapshot.pid
        if self._view.rows != "locks":
            if snapshot.profile:
                self._module = snapshot.profile.module
                yield from self._changed(
                    pid, 0, "", snapshot.profile.samples, None, window_ns, snapshot.handlers
                )
            return
        for lock in snapshot.locks:
            number = self._number_of_lock(pid, lock)
            by_role: tuple[tuple[Role, Sequence[Sample]], ...] = (
                ("released", lock.releases),
                ("waited for", lock.waits),
                ("still waited for", lock.still_waiting),
            )
            for role, samples in by_role:
                yield from self._changed(pid, lock.address, role, samples, (number,), window_ns)
            held[number] = _Held(self._mean_hold(number, lock), lock.hold_lengths)
            self._unknown.discard(number)
            if not are_releases_known(lock.releases):
                self._unknown.add(number)

    def _changed(
        self,
        pid: int,
        address: int,
        role: Role,
        samples: Iterable[Sample],
        rows: tuple[int, ...] | None,
        window_ns: int,
        handlers: Sequence[str] | None = None,
    ) -> Iterator[TopStack]:
        """The samples with what is new in them; `rows` are theirs, unless each has its own."""
        # Hashing a location goes through all its frames: once for each object is enough.
        by_id: dict[int, int] = {}
        known_stacks, locations = self._stacks, self._locations
        for index, sample in enumerate(samples):
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
                known = known_stacks[key] = _Known(rows or ())
            count, value = sample.values[0], sample.values[-1]
            handler = handlers[index] if handlers else ""
            seen = handler, sample.behaviour is not None
            if rows is None and known.seen != seen:
                known.seen = seen
                known.rows = self._rows_of(pid, sample, stack, handler)
            more = count - known.count, value - known.value
            yield TopStack(known.rows, role, sample, *more, window_ns, *known.new_variances(sample))
            if not self._is_moment:
                known.count, known.value = count, value
                known.variance, known.count_variance = sample.variance, sample.count_variance

    def _rows_of(
        self, pid: int, sample: Sample, stack: Sequence[int], handler: str
    ) -> tuple[int, ...]:
        """The numbers of the rows that a stack belongs to: the first one's own value is its."""
        if self._view.rows == "functions":
            return self._functions_of(pid, sample, stack)
        name, line = operation_of(sample)
        rule = rule_of(self._view.kind.name, sample)
        if handler:
            key = RowKey(pid, name, handler, idle=rule)
        else:
            own = None
            if not is_of_program(line.function, self._module):
                own = frame_of_program(waiter_of(sample).frames, self._module)
            program = readable(own.function) if own else ""
            function = readable(line.function)
            by = waker_of(sample)
            waker = readable(operation_of(by)[1].function) if by else ""
            place = line.file, line.line
            key = RowKey(pid, name, function, *place, rule, program=program, waker=waker)
        number = self._number(key)
        if is_unknown_release(sample):
            self._unknown.add(number)
        return (number,)

    def _functions_of(self, pid: int, sample: Sample, stack: Sequence[int]) -> tuple[int, ...]:
        """Each function once, however often it called itself; `stack` has the locations' numbers.

        Each location is looked up once: stacks are many and deep, their locations few.
        """
        known = self._functions.setdefault(pid, {})
        rows: list[int] = []
        for at, location in zip(stack, sample.locations, strict=True):
            numbers = known.get(at)
            if numbers is None:
                keys = [RowKey(pid, "", readable(f.function), f.file) for f in location.frames]
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

    def _rows(self, stacks: Iterable[TopStack], held: Mapping[int, _Held]) -> list[TopRow]:
        sums = [[0, 0, 0, 0, 0, 0] for _ in self._keys]
        variances = [[0.0, 0.0, 0.0, 0.0] for _ in self._keys]
        lengths = [NO_LENGTHS for _ in self._keys]
        for stack in stacks:
            if not stack.rows or stack.role not in ("", _RELEASED):
                continue
            values = stack.sample.values
            row = sums[stack.rows[0]]
            row[0] += stack.count
            row[1] += stack.value
            row[2] += values[0]
            row[3] += values[-1]
            variances[stack.rows[0]][0] += stack.variance
            variances[stack.rows[0]][1] += stack.sample.variance
            variances[stack.rows[0]][2] += stack.count_variance
            variances[stack.rows[0]][3] += stack.sample.count_variance
            lengths[stack.rows[0]] += stack.sample.lengths
            if self._view.rows == "functions":
                for number in stack.rows:
                    sums[number][4] += stack.value
                    sums[number][5] += values[-1]
        return [
            TopRow(
                key=self._keys[number],
                number=number,
                count=count,
                value=value,
                window_ns=self._read[self._keys[number].pid].window_ns,
                total_count=total_count,
                total_value=total_value,
                callees=callees,
                total_callees=total_callees,
                held_ns=held[number].mean_ns if number in held else None,
                hold_lengths=held[number].lengths if number in held else NO_LENGTHS,
                variance=variances[number][0],
                total_variance=variances[number][1],
                count_variance=variances[number][2],
                total_count_variance=variances[number][3],
                lengths=lengths[number],
                is_unknown=number in self._unknown,
            )
            for number, (
                count,
                value,
                total_count,
                total_value,
                callees,
                total_callees,
            ) in enumerate(sums)
            if total_count or total_value or total_callees or number in held
        ]


class _Held(NamedTuple):
    """How long a lock was held: the mean, None if it is not known, and holds since the start."""

    mean_ns: float | None
    lengths: WaitHistogram


@dataclass(frozen=True, slots=True)
class _Read:
    """What was new of a target when it was sampled, and since when."""

    recorded_ns: int = 0
    window_ns: int = 0
    stacks: Sequence[TopStack] = ()
    held: Mapping[int, _Held] = field(default_factory=dict)


@dataclass(slots=True)
class _Known:
    """A stack in the sample before."""

    rows: tuple[int, ...]
    count: int = 0
    value: int = 0
    variance: float = 0.0
    count_variance: float = 0.0
    # Its handler, whose name may change, and whether it is idle by behaviour, which shows only
    # after several samples.
    seen: tuple[str, bool] | None = None

    def new_variances(self, sample: Sample) -> tuple[float, float]:
        """The variances of the value and of the count that are new."""
        count, value = sample.values[0], sample.values[-1]
        return (
            _of_new(value, sample.variance, self.value, self.variance),
            _of_new(count, sample.count_variance, self.count, self.count_variance),
        )


def _of_new(value: int, variance: float, earlier: int, variance_of_earlier: float) -> float:
    """The variance of what is new: that of a later sum has that of an earlier one in it.

    Where the sum became more certain, what is new is as certain as the sum.
    """
    more = variance - variance_of_earlier
    if more > 0 or not variance or value <= 0:
        return max(0.0, more)
    return variance * ((value - earlier) / value) ** 2
