"""Observes one process: samples and dumps of its goroutines, counters before and after."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import TargetGone
from ebpfprof.findings.evidence import BeforeAndAfter, Evidence
from ebpfprof.findings.memory_growth import growth
from ebpfprof.findings.moments import LONG_NS, SHORT_NS
from ebpfprof.findings.pool_counts import PoolCounts
from ebpfprof.goruntime.process import for_user
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.goruntime.waits.standing import DUMPED
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.observing.heap_growth import HeapGrowthReader
from ebpfprof.observing.host import HostReader
from ebpfprof.observing.pools import PoolObserver
from ebpfprof.observing.program import program_of
from ebpfprof.observing.runtime import RuntimeReader
from ebpfprof.profile.channel_deadlocks import channels_of_hangs
from ebpfprof.profile.diagnosis import diagnosis
from ebpfprof.profile.leaks import LeakWatch
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ebpfprof.findings.runtime import GrowingStack, HeapMoment
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.goroutines import GoroutineDump
    from ebpfprof.profile.leaks import Suspects
    from ebpfprof.profile.memory import TypeBytes
    from ebpfprof.recording.live import LiveSession
    from ebpfprof.recording.reports import ProcessSums
    from ebpfprof.recording.target import LiveTarget

_DUMPS: Final = 20  # in the time of the observation
_TABLE_S: Final = 0.25  # between samples of the table: these show which goroutines do not move
_LATE_S: Final = 0.002
"""A sample may come late by so much: what it saw must be old enough all the same."""
_LEADS_S: Final = (LONG_NS / 1e9 + _LATE_S, SHORT_NS / 1e9 + _LATE_S)
"""Such samples come before each dump, too: they show which waits are that old."""
_SHORT_LEADS_S: Final = (0.006, 0.0015)
"""These show how many waits began right before the dump. They show nothing of what stands still:
goroutines have no time to move."""
_OWN_SHARE: Final = 0.02  # of a processor: programs with very many goroutines get fewer dumps
_MOST_DUMPED: Final = 20_000  # goroutines
_COSTLY_S: Final = 0.2  # of CPU time: of such dumps, there is none that can be done without
_FEW_DUMPS: Final = 5
_MANY: Final = 2_000  # goroutines: then it is their number why dumps are few


class Observation:
    """What is observed of one process, which `live` records, once or repeatedly.

    For one thread at a time. How long goroutines have not moved, and which groups of them grow, is
    known from the first observation on.
    """

    def __init__(
        self, live: LiveSession, target: LiveTarget, go: GoTarget, length_s: float
    ) -> None:
        """Open its memory. Raises TargetGone, PermissionDenied or CorruptBinary."""
        self._live, self._target, self._go = live, target, go
        self._mean_s = length_s / _DUMPS
        with self._for_user():
            self._dumper = GoroutineDumper(go, most=_MOST_DUMPED)
            self._runtime = RuntimeReader(go)
        self._pools = PoolObserver(go)
        self._heap_growth = HeapGrowthReader(go)
        self._host = HostReader(go.target)
        self._judge = self._dumper.judge()
        self._ages = self._dumper.judge()
        self._leads_ns: list[int] = []
        """When the samples right before the next dump ended (CLOCK_MONOTONIC)."""
        self._leaks = LeakWatch()
        self._suspects: list[Suspects] = []
        self._dumps: list[GoroutineDump] = []
        self._heap: list[HeapMoment] = []
        self._due_s: list[float] = []
        """Of the samples until the next dump, and of that."""
        self._cost_s = 0.0
        self._is_costly = False
        """Whether the last dump took very long."""
        self._first_ns = 0
        self.is_over = False
        """Whether the process has ended: finish() then returns what was observed until then."""

    @property
    def due_s(self) -> float:
        """When the next sample is due, by time.monotonic()."""
        return self._due_s[0]

    def start(self) -> None:
        """Begin to observe, for the first time or again. Raises AttachFailed or TargetGone."""
        self._dumps, self._heap = [], []
        self._before: ProcessSums = self._live.start(self._target)
        self._began_ns = kernel_now_ns()
        self._first_ns = self._first_ns or self._began_ns
        self._host_before = self._host.read()
        self._heap_growth.start()
        self._runtime_before = self._runtime.read()
        self._is_costly = False
        self._plan(0.0, 0.0)

    def sample(self) -> None:
        """Take the sample that is due: a dump, or one of the table of goroutines only.

        Raises UnreadableMemory or CorruptBinary; TargetGone only before the first dump.
        """
        try:
            self._sample()
        except TargetGone:
            if not self._dumps:
                raise
            self.is_over = True

    def _sample(self) -> None:
        began_s = time.thread_time()
        left, is_first = len(self._due_s), not self._dumps
        is_dump, is_short = left == 1, 1 < left <= 1 + len(_SHORT_LEADS_S)
        self._sample_table(is_short=is_short)
        table_s = time.thread_time() - began_s
        if 1 < left <= 1 + len(_LEADS_S + _SHORT_LEADS_S):
            self._leads_ns.append(self._ages.ended_ns)
        if is_dump:
            self._dumps.append(self._dump())
            if is_first:
                with self._for_user():
                    self._pools.start(self._dumper)
        self._cost_s += time.thread_time() - began_s
        del self._due_s[0]
        if is_dump:
            number = len(self._dumps[-1].goroutines)
            self._is_costly = is_costly(self._cost_s, number, is_first=is_first)
            if is_first and not self._is_costly:
                self._cost_s = 0.0  # it looked up all functions, which the others need not do
            self._plan(max(self._mean_s, self._cost_s / _OWN_SHARE), table_s)
            self._cost_s = 0.0

    def _plan(self, mean_s: float, table_s: float) -> None:
        """Plan a dump in about `mean_s`, and samples of the table before it, one of which takes
        `table_s`."""
        now_s = time.monotonic()
        dump_s = now_s + max(_LEADS_S[0], random.uniform(0.5, 1.5) * mean_s)
        apart_s = max(_TABLE_S, table_s / _OWN_SHARE)
        table = (dump_s - now_s) / apart_s
        moments = [random.uniform(now_s, dump_s - _LEADS_S[0]) for _ in range(round(table))]
        self._due_s, self._leads_ns = [*sorted(moments), *lead_moments(dump_s), dump_s], []

    def finish(self) -> Evidence:
        """End the observation, and return all that was observed.

        Of a process that has ended, this is all until then, without counters. Raises as sample().
        """
        host = runtime = None
        growing: tuple[GrowingStack, ...] = ()
        types: tuple[TypeBytes, ...] = ()
        users: Mapping[int, tuple[int, ...]] = {}
        pools = PoolCounts()
        try:
            last = self._last_dump()
            with self._for_user():
                users = self._dumper.channel_users(channels_of_hangs(last.goroutines))
                pools = self._pools.finish(self._dumper)
            host = BeforeAndAfter(self._host_before, self._host.read())
            runtime = BeforeAndAfter(self._runtime_before, self._runtime.read())
            if growth(self._heap):
                growing = self._heap_growth.growing()
                types = () if growing else self._heap_growth.types()
        except TargetGone:
            if not self._dumps:
                raise
            last = self._dumps[-1]
        ended_ns = kernel_now_ns()
        self._live.notice_endings()
        sums = self._live.sums(self._target)
        self._live.stop(self._target)
        report = self._live.report(sums, self._before)
        failures = list(report.hints)
        if ending := self._target.ending:
            host = runtime = None
            ended_ns = self._target.recorded.ended_ns
            failures.append(f"{ending.text[:1].upper()}{ending.text[1:]}: this is until then.")
        overhead = report.overhead
        profiles = {profile.kind: profile for profile in report.profiles}
        last = replace(last, apart_ns=last.read_ns - self._first_ns, samples=self._judge.samples)
        failures += left_out(last, len(self._dumps))
        return Evidence(
            program=program_of(self._go),
            length_ns=ended_ns - self._began_ns,
            wall=profiles["wall"],
            cpu=profiles.get("cpu"),
            dumps=tuple(self._dumps or [last]),
            diagnosis=diagnosis(last),
            leaks=tuple(self._suspects),
            heap=tuple(self._heap),
            growing=growing,
            largest_types=types,
            pools=pools,
            channel_users=users,
            runtime=runtime,
            host=host,
            overhead=overhead.ns / overhead.cpu_ns if overhead and overhead.cpu_ns else None,
            failures=tuple(failures),
        )

    def _last_dump(self) -> GoroutineDump:
        """A dump now, without samples right before it: how long waits take is unknown.

        If another one would take too much CPU time, it is the one before.
        """
        if self._is_costly:
            return self._dumps[-1]
        self._leads_ns = []
        self._sample_table()
        return self._dump()

    def _sample_table(self, *, is_short: bool = False) -> None:
        """Sample the table; `is_short`: right before a dump, for the ages of waits alone."""
        judges = (self._ages,) if is_short else (self._ages, self._judge)
        with self._for_user():
            self._dumper.sample(*judges)

    def _dump(self) -> GoroutineDump:
        with self._for_user():
            since_ns = self._judge.standing(DUMPED).by_wait()
            seen_ns = self._ages.seen().by_wait()
            dump = self._dumper.dump_once(
                since_ns, seen_ns=seen_ns, has_waits=True, has_requests=True
            )
        ended_ns = (self._ages.ended_ns, *reversed(self._leads_ns))
        leads_ns = tuple(dump.read_ns - each_ns for each_ns in ended_ns)
        dump = replace(dump, leads_ns=leads_ns)
        heap = self._runtime.heap()
        self._heap += [heap] if heap else []
        self._suspects = self._leaks.add(dump)
        return dump

    @contextmanager
    def _for_user(self) -> Iterator[None]:
        """Errors of the program's tables are errors of its file."""
        try:
            yield
        except SymbolizerError as error:
            raise for_user(self._go.target, error, self._go.path) from error


def lead_moments(dump_s: float) -> list[float]:
    """When the samples right before a dump are due, in seconds, if the dump is at `dump_s`.

    A wait that the first one saw has lasted LONG_NS at the dump, one that the second one saw
    SHORT_NS, also where the sample came a little late.
    """
    return [dump_s - lead_s for lead_s in (*_LEADS_S, *_SHORT_LEADS_S)]


def is_costly(cost_s: float, goroutines: int, *, is_first: bool) -> bool:
    """Whether a dump takes so much CPU time that there are only few, or no other one.

    The first one also looks up functions and types: of few goroutines, that is most of it.
    """
    return cost_s > _COSTLY_S and not (is_first and goroutines < _MANY)


def left_out(last: GoroutineDump, dumps: int) -> list[str]:
    """Sentences about goroutines that were not read, as they are too many.

    `last` is the last of so many `dumps`.
    """
    read = len(last.goroutines) + last.system
    sentences = []
    if last.beyond:
        sentences.append(
            f"Stacks and locks are those of {read:,} goroutines; {last.beyond:,} were not read."
        )
    if 0 < dumps < _FEW_DUMPS and read >= _MANY:
        times = "once" if dumps == 1 else f"{dumps} times"
        sentences.append(
            f"To read {read:,} goroutines takes long, so they were read {times} only: growth and "
            "waits may be missed."
        )
    return sentences
