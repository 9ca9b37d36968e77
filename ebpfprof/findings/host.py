"""What the kernel knows of a process, its control groups and the machine, at a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebpfprof.profile.connections import TcpConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuGroup:
    """A control group by its name: the CPU time that it may use, and has used.

    `quota_cpus` is how many processors it may use on average over each period; None without a
    limit. `throttled_ns` is the time for which its threads were stopped, of all processors on which
    they were.
    """

    name: str
    quota_cpus: float | None = None
    period_us: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_ns: int | None = None
    used_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """A control group by its name: the memory that it may use, and uses.

    `limit_bytes` is the lower one of the two limits of version 2 (max, high), None without one.
    `needed_bytes` can't be reclaimed without swap: the rest of `used_bytes` is page cache. `hits`
    counts how often it reached the limit, so that the kernel had to reclaim memory, `kills` the
    processes that the OOM killer ended.
    """

    name: str
    limit_bytes: int | None = None
    used_bytes: int | None = None
    needed_bytes: int | None = None
    hits: int | None = None
    kills: int | None = None


@dataclass(frozen=True, slots=True)
class ThreadMoment:
    """Counters of a thread; `delayed_ns`: it could run, but had no processor."""

    delayed_ns: int
    voluntary_switches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineMoment:
    """The time of all processors of the machine: in use, idle, and used by its host (`steal`)."""

    processors: int
    busy_ns: int
    idle_ns: int
    steal_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMoment:
    """Counters of the kernel since the process, its group or the machine began.

    What could not be read is None or missing. `groups` are the innermost first.
    """

    cpu_ns: int
    """The CPU time of all threads of the process."""
    age_ns: int | None = None
    """How long ago the process started."""
    affinity: int | None = None
    """The number of processors on which its first thread may run."""
    resident_bytes: int | None = None
    major_faults: int | None = None
    """Page faults that waited for a disk."""
    threads: Mapping[int, ThreadMoment] | None = None
    cpu_groups: tuple[CpuGroup, ...] = ()
    memory_groups: tuple[MemoryGroup, ...] = ()
    stalled_us: Mapping[str, int] = field(default_factory=dict)
    """For how long some thread waited for "memory" or "io" (PSI): of the innermost group that
    counts that, or of the machine."""
    machine: MachineMoment | None = None
    connections: Mapping[int, TcpConnection] | None = None
    """Its TCP connections, by the inode of the socket."""

    @property
    def quota_cpus(self) -> float | None:
        """How many processors the tightest of its groups may use; None without a limit."""
        quotas = (group.quota_cpus for group in self.cpu_groups if group.quota_cpus)
        return min(quotas, default=None)

    @property
    def processors(self) -> float | None:
        """How many processors it can use: by its affinity and its quota."""
        limits = [limit for limit in (self.affinity, self.quota_cpus) if limit]
        return min(limits, default=None)


@dataclass(frozen=True, slots=True)
class Throttling:
    """How a group with a quota was throttled: in `throttled` of its `periods`, for `stopped_ns`.

    `stopped_ns` adds up the processors on which its threads were stopped. `used_cpus` is how many
    processors it used on average, None if unknown.
    """

    group: CpuGroup
    periods: int
    throttled: int
    stopped_ns: int
    used_cpus: float | None

    @property
    def stop_ns(self) -> float:
        """For how long it was stopped in each of the throttled periods, on average.

        It ran on k processors until the quota was used up, so k * (period - stop) is the quota
        of a period, and then each of these was stopped: k * stop is the sum of the kernel.
        """
        period_ns, quota = 1000 * (self.group.period_us or 0), self.group.quota_cpus or 0.0
        of_all = self.stopped_ns / self.throttled if self.throttled else 0.0
        total = quota * period_ns + of_all
        return of_all * period_ns / total if total else 0.0

    def stopped_share(self, length_ns: int) -> float:
        """The part of `length_ns` for which it was stopped, 0 to 1."""
        return min(1.0, self.throttled * self.stop_ns / length_ns) if length_ns else 0.0


@dataclass(frozen=True, slots=True)
class HostChange:
    """The counters before and after `length_ns` nanoseconds. Counters of the time are None if
    they are unknown."""

    before: HostMoment
    after: HostMoment
    length_ns: int

    @property
    def cpu_ns(self) -> int:
        """The CPU time of the process."""
        return max(0, self.after.cpu_ns - self.before.cpu_ns)

    @property
    def delayed_ns(self) -> int | None:
        """For how long its threads could run but had no processor."""
        return self._of_threads(lambda thread: thread.delayed_ns)

    @property
    def voluntary_switches(self) -> int | None:
        """How often its threads gave up their processor to wait."""
        return self._of_threads(lambda thread: thread.voluntary_switches)

    def stalled(self, resource: str) -> float:
        """The part of the time for which some thread of the group waited for a resource."""
        us = difference(self.before.stalled_us.get(resource), self.after.stalled_us.get(resource))
        return 1000 * us / self.length_ns if us and self.length_ns else 0.0

    @property
    def throttling(self) -> Throttling | None:
        """Of the groups with a quota, the one that was stopped longest; None without a quota."""
        before = {group.name: group for group in self.before.cpu_groups}
        known = (
            self._throttling(before[group.name], group)
            for group in self.after.cpu_groups
            if group.quota_cpus and group.name in before
        )
        return max(filter(None, known), key=lambda group: group.stopped_ns, default=None)

    def _throttling(self, before: CpuGroup, after: CpuGroup) -> Throttling | None:
        periods = difference(before.periods, after.periods)
        throttled = difference(before.throttled_periods, after.throttled_periods)
        stopped_ns = difference(before.throttled_ns, after.throttled_ns)
        if periods is None or throttled is None or stopped_ns is None:
            return None
        used_ns = difference(before.used_ns, after.used_ns)
        used_cpus = used_ns / self.length_ns if used_ns is not None and self.length_ns else None
        return Throttling(after, periods, throttled, stopped_ns, used_cpus)

    def _of_threads(self, count: Callable[[ThreadMoment], int]) -> int | None:
        before, after = self.before.threads, self.after.threads
        if before is None or after is None:
            return None
        # Threads that ended meanwhile are left out; new ones began at 0.
        return sum(
            max(0, count(thread) - (count(before[number]) if number in before else 0))
            for number, thread in after.items()
        )


def difference(before: int | None, after: int | None) -> int | None:
    """By how much a counter rose; None if it is unknown."""
    return None if before is None or after is None else max(0, after - before)
