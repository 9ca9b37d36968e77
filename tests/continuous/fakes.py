"""A live session without a kernel, whose targets do what the test says."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ebpfprof.continuous.follow import Follower
from ebpfprof.continuous.manager import Manager
from ebpfprof.continuous.process import RecordedProcess
from ebpfprof.discovery.processes import GoProcess, ProcessTable
from ebpfprof.errors import EbpfprofError, NotGoProgram, TargetGone
from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profile.completeness import Completeness
from ebpfprof.profile.delta import difference
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Location, Profile, Sample, ValueType
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.registry import kind_named
from ebpfprof.profilers.report_builder import Report
from tests.unit.export.small_profile import LOCK, MAIN, RECEIVE, WORK

ALL_KINDS: tuple[Any, ...] = ("block", "mutex", "cpu")
PID = 4_194_400  # no process has it: it is above PID_MAX_LIMIT
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class FakeAccount:
    """Says how many events there were."""

    title: str
    events: int

    def __sub__(self, earlier: FakeAccount) -> FakeAccount:
        return FakeAccount(self.title, self.events - earlier.events)

    def __add__(self, later: FakeAccount) -> FakeAccount:
        return FakeAccount(self.title, self.events + later.events)

    @property
    def completeness(self) -> Completeness:
        return Completeness(recorded=self.events)

    def comments(self) -> tuple[str, ...]:
        return (f"{self.title}: {self.events}",)


@dataclass(eq=False)
class FakeTarget:
    """A target whose sums grow when the test says so."""

    pid: int
    name: str = "shop"
    go_version: str | None = "go1.27.3"
    kinds: tuple[Any, ...] = ALL_KINDS
    ending: TargetEnd | None = None
    users: int = 0
    begun: int = 0
    starts: int = 0
    snapshots: int = 0
    watched_s: int = 0
    events: int = 0
    is_removed: bool = False
    handlers: Any = None
    has_lengths: bool = False
    """Whether its block profile has the lengths of its waits."""

    @property
    def is_recording(self) -> bool:
        return self.users > 0

    def work(self, seconds: int = 1) -> None:
        """An event happens once a second; it counts if the target is being recorded."""
        if self.users:
            self.watched_s += seconds
            self.events += seconds

    def profile(self, kind: Any) -> Profile:  # noqa: ANN401 - any name of a kind
        """All so far: events of a microsecond each, and one more once it was recorded."""
        types = kind_named(kind).sample_types
        events = _samples((LOCK, WORK), self.events, 1000, types)
        steady = _samples((RECEIVE, WORK), min(self.starts, 1), 10, types)
        samples = (*events, *steady)
        if self.has_lengths and kind == "block":
            samples = tuple(map(_with_lengths, samples))
        profile = Profile(
            kind=kind,
            sample_types=types,
            period_type=types[0],
            period=1,
            samples=samples,
            mappings=(MAIN,),
            time_ns=1_700_000_000 * SECOND_NS,
            duration_ns=self.watched_s * SECOND_NS,
            comments=(),
        )
        return profile.accounted(FakeAccount(f"{kind} of {self.pid}", self.events))

    def profiles(self, kinds: Collection[str] | None = None) -> dict[str, Profile]:
        """Those of these kinds, or all."""
        return {each: self.profile(each) for each in self.kinds if kinds is None or each in kinds}


def _is_timed(kind: str) -> bool:
    """Whether its samples only add up for those who hold earlier sums, as those of CPU time."""
    endpoint = kind_named(kind).endpoint
    return endpoint is not None and endpoint.seconds is not None


def _samples(
    stack: tuple[Location, ...], count: int, value: int, types: Sequence[ValueType]
) -> list[Sample]:
    """A sample of so many events, with `value` of each other type for each of them."""
    values = (count, *[count * value for _ in types[1:]])
    return [Sample(stack, values)] if count else []


def _with_lengths(sample: Sample) -> Sample:
    count, ns = sample.values
    return replace(sample, lengths=WaitHistogram.of([ns // count] * count))


@dataclass(eq=False)
class FakeSums:
    """As ebpfprof.recording.reports.ProcessSums."""

    target: FakeTarget
    profiles: Mapping[str, Profile]


@dataclass
class FakeLive:
    """As ebpfprof.recording.live.LiveSession."""

    targets: dict[int, FakeTarget] = field(default_factory=dict)
    lost: list[Loss] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """start() returns only when it is set."""
    opens: threading.Event = field(default_factory=threading.Event)
    """add() returns only when it is set."""
    refusal: EbpfprofError | None = None
    """What add() raises."""
    adds: int = 0

    def __post_init__(self) -> None:
        self.gate.set()
        self.opens.set()

    def add(self, pid: int) -> FakeTarget:
        self.adds += 1
        assert self.opens.wait(60)
        if self.refusal:
            raise self.refusal
        if pid not in self.targets:
            raise NotGoProgram(f"Process {pid} is not one of ours.")
        return self.targets[pid]

    def start(self, target: FakeTarget) -> FakeSums:
        assert not target.is_removed
        target.begun += 1
        sums = FakeSums(target, target.profiles())
        assert self.gate.wait(60)
        target.users += 1
        target.starts += 1
        return sums

    def stop(self, target: FakeTarget) -> None:
        assert target.users > 0
        target.users -= 1

    def remove(self, target: FakeTarget) -> None:
        target.is_removed = True

    def sums(self, target: FakeTarget, kinds: Collection[str] | None = None) -> FakeSums:
        assert not target.is_removed
        target.snapshots += 1
        return FakeSums(target, target.profiles(kinds))

    def report(self, sums: FakeSums, since: FakeSums | None = None) -> Report:
        assert not sums.target.is_removed
        now = sums.profiles
        if since is None:
            found = [each for kind, each in now.items() if not _is_timed(kind)]
        else:
            found = [difference(now[kind], since.profiles[kind]) for kind in now]
        return Report(cast("Target", None), found)

    def overhead(self, target: FakeTarget) -> Overhead:
        if target.is_removed:
            raise TargetGone("It was removed.")
        return Overhead(Runs(target.snapshots, 0.0), Runs(), 1e9, cpu_ns=1)

    def losses(self, _target: FakeTarget | None = None) -> Sequence[Loss]:
        return self.lost


class FakeFollower(Follower):
    """Finds the processes that the test names."""

    def __init__(self, manager: Manager, *found: GoProcess, **options: Any) -> None:  # noqa: ANN401 - Follower's
        super().__init__(manager, cast("ProcessTable", None), **options)
        self.found = list(found)

    def follow(self) -> None:
        self._follows = True

    async def survey(self) -> None:
        self._note(self.found)


def go_process(pid: int, **fields: Any) -> GoProcess:  # noqa: ANN401 - GoProcess's fields
    known = GoProcess(pid, "shop", "shop -x", "eve", "go1.27.3", "exe", None, True, "")
    return replace(known, **fields)


def managed(live: FakeLive, **options: Any) -> Manager:  # noqa: ANN401 - the Manager's own
    """A manager of all kinds of profile; `options` are the manager's."""
    return Manager(live, kinds=ALL_KINDS, **options)


def made(**options: Any) -> tuple[Manager, RecordedProcess, FakeTarget]:  # noqa: ANN401 - the Manager's own
    """A manager with one process, and the process's target; `options` are the manager's."""
    target = FakeTarget(PID)
    manager = managed(FakeLive({PID: target}), **options)
    return manager, manager.add_opened(target), target


def counts(profile: Profile) -> list[int]:
    """The number of events in each sample."""
    return [sample.values[0] for sample in profile.samples]
