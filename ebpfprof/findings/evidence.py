"""What was observed of a process: plain data, from which the rules make findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from ebpfprof.findings.cpu import CpuTime, cpu_time_of
from ebpfprof.findings.host import HostChange
from ebpfprof.findings.moments import Moments, moments_of
from ebpfprof.findings.pool_counts import PoolCounts
from ebpfprof.findings.work import WorkTime, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.findings.host import HostMoment
    from ebpfprof.findings.runtime import GrowingStack, HeapMoment, RuntimeMoment
    from ebpfprof.profile.diagnosis import Diagnosis
    from ebpfprof.profile.goroutines import GoroutineDump
    from ebpfprof.profile.leaks import Suspects
    from ebpfprof.profile.memory import TypeBytes
    from ebpfprof.profile.model import Profile

_Moment = TypeVar("_Moment")


@dataclass(frozen=True, slots=True)
class BeforeAndAfter(Generic[_Moment]):
    """Counters at the beginning and at the end of the observation."""

    before: _Moment
    after: _Moment


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """The program that runs: its name, pid and version of Go, and settings of its build.

    `module` is the path of its main module, "" if unknown. `debug` are the settings of GODEBUG in
    its environment at its start. `is_race`: built with -race.
    """

    pid: int
    name: str
    version: str
    module: str = ""
    debug: tuple[tuple[str, str], ...] = ()
    is_race: bool = False


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that was observed of a process in `length_ns` nanoseconds.

    `wall` has the time of all goroutines, by goroutine samples, `cpu` the CPU time, None without
    it. `dumps` are all goroutines at random moments, with what each waits for. `diagnosis` is made
    of samples of the whole time. `leaks` are groups of goroutines of which there were more in each
    dump. `heap` is the heap at the moments of the dumps, `growing` the stacks of which more is in
    use at the end, `largest_types` the types that take most where stacks are not known. `pools`
    were found in memory. `channel_users` are the ids of goroutines of the last dump that can use a
    channel, by its address, of channels for which goroutines wait for very long. `overhead` is the
    part of its CPU time that the observation took, 0 to 1.
    """

    program: ProgramFacts
    length_ns: int
    wall: Profile
    cpu: Profile | None
    dumps: tuple[GoroutineDump, ...]
    diagnosis: Diagnosis
    leaks: tuple[Suspects, ...] = ()
    runtime: BeforeAndAfter[RuntimeMoment] | None = None
    heap: tuple[HeapMoment, ...] = ()
    growing: tuple[GrowingStack, ...] = ()
    largest_types: tuple[TypeBytes, ...] = ()
    pools: PoolCounts = field(default_factory=PoolCounts)
    channel_users: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    host: BeforeAndAfter[HostMoment] | None = None
    overhead: float | None = None
    failures: tuple[str, ...] = field(default=())
    """What could not be observed, in sentences."""

    @cached_property
    def moments(self) -> Moments:
        """What the goroutines of the dumps did, by place."""
        return moments_of(self.dumps)

    @cached_property
    def work(self) -> WorkTime:
        """What goroutines did, by place."""
        return work_of(self.wall, self.moments)

    @cached_property
    def cpu_time(self) -> CpuTime | None:
        """What the CPU time was used for; None if that was not recorded."""
        return cpu_time_of(self.cpu) if self.cpu else None

    @property
    def host_change(self) -> HostChange | None:
        """How the kernel's counters changed; None if they were not read."""
        host = self.host
        return HostChange(host.before, host.after, self.length_ns) if host else None

    @property
    def seconds(self) -> float:
        """How long the process was observed."""
        return self.length_ns / 1e9
