"""Observes one process: samples and dumps of its goroutines, counters before and after."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.findings.evidence import BeforeAndAfter, Evidence
from ebpfprof.findings.memory_growth import growth
from ebpfprof.findings.moments import LONG_NS, SHORT_NS
from ebpfprof.goruntime.process import for_user
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.goruntime.waits.standing import DUMPED, Threshold
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.observing.heap_growth import HeapGrowthReader
from ebpfprof.observing.host import HostReader
from ebpfprof.observing.program import program_of
from ebpfprof.observing.runtime import RuntimeReader
from ebpfprof.profile.diagnosis import diagnosis
from ebpfprof.profile.leaks import LeakWatch
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.runtime import HeapMoment
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.goroutines import GoroutineDump
    from ebpfprof.profile.leaks import Suspects
    from ebpfprof.recording.live import LiveSession
    from ebpfprof.recording.reports import ProcessSums
    from ebpfprof.recording.target import LiveTarget

_DUMPS: Final = 20  # in the time of the observation
_TABLE_S: Final = 0.25  # between samples of the table: these show which goroutines do not move
_LEADS_S: Final = (LONG_NS / 1e9, SHORT_NS / 1e9)
"""Such samples come before each dump, too: they show which waits are that old."""
_OWN_SHARE: Final = 0.03  # of a processor: programs with very many goroutines get fewer dumps
_MOST_DUMPED: Final = 20_000  # goroutines


class Observation:
    """What is observed of one process, which `live` records. For one thread at a time."""

    def __init__(
        self, live: LiveSession, target: LiveTarget, go: GoTarget, length_s: float
    ) -> None:
        """Open its memory. Raises TargetGone, PermissionDenied or CorruptBinary."""
        self._live, self._target, self._go = live, target, go
        self._mean_s = length_s / _DUMPS
        with self._for_user():
            self._dumper = GoroutineDumper(go, most=_MOST_DUMPED)
            self._runtime = RuntimeReader(go)
        self._heap_growth = HeapGrowthReader(go)
        self._host = HostReader(go.target)
        self._judge = self._dumper.judge()
        self._leaks = LeakWatch()
        self._suspects: list[Suspects] = []
        self._dumps: list[GoroutineDump] = []
        self._heap: list[HeapMoment] = []
        self._due_s: list[float] = []
        """Of the samples until the next dump, and of that."""
        self._cost_s = 0.0

    @property
    def due_s(self) -> float:
        """When the next sample is due, by time.monotonic()."""
        return self._due_s[0]

    def start(self) -> None:
        """Begin to observe. Raises AttachFailed or TargetGone."""
        self._before: ProcessSums = self._live.start(self._target)
        self._began_ns = kernel_now_ns()
        self._host_before = self._host.read()
        self._heap_growth.start()
        self._runtime_before = self._runtime.read()
        self._plan(0.0, 0.0)

    def sample(self) -> None:
        """Take the sample that is due: a dump, or one of the table of goroutines only.

        Raises TargetGone, UnreadableMemory or CorruptBinary.
        """
        began_s = time.thread_time()
        self._sample_table()
        table_s = time.thread_time() - began_s
        is_dump = len(self._due_s) == 1
        if is_dump:
            self._dumps.append(self._dump())
        self._cost_s += time.thread_time() - began_s
        del self._due_s[0]
        if is_dump:
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
        self._due_s = sorted([*moments, *(dump_s - lead_s for lead_s in _LEADS_S), dump_s])

    def finish(self) -> Evidence:
        """End the observation, and return all that was observed. Raises as sample()."""
        self._sample_table()
        last = self._dump()  # without samples right before it: how long waits take is not known
        ended_ns = kernel_now_ns()
        host, runtime = self._host.read(), self._runtime.read()
        sums = self._live.sums(self._target)
        report = self._live.report(sums, self._before)
        overhead = report.overhead
        profiles = {profile.kind: profile for profile in report.profiles}
        last = replace(last, apart_ns=ended_ns - self._began_ns, samples=self._judge.samples)
        is_growing = growth(self._heap) is not None
        return Evidence(
            program=program_of(self._go),
            length_ns=ended_ns - self._began_ns,
            wall=profiles["wall"],
            cpu=profiles.get("cpu"),
            dumps=tuple(self._dumps or [last]),
            diagnosis=diagnosis(last),
            leaks=tuple(self._suspects),
            heap=tuple(self._heap),
            growing=(growing := self._heap_growth.growing() if is_growing else ()),
            largest_types=self._heap_growth.types() if is_growing and not growing else (),
            runtime=BeforeAndAfter(self._runtime_before, runtime),
            host=BeforeAndAfter(self._host_before, host),
            overhead=overhead.ns / overhead.cpu_ns if overhead and overhead.cpu_ns else None,
            failures=tuple(report.hints),
        )

    def _sample_table(self) -> None:
        with self._for_user():
            self._dumper.sample(self._judge)

    def _dump(self) -> GoroutineDump:
        with self._for_user():
            since_ns = self._judge.standing(DUMPED).by_wait()
            seen_ns = self._judge.standing(Threshold(1)).by_wait()
            dump = self._dumper.dump_once(since_ns, seen_ns=seen_ns, has_waits=True)
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
            raise for_user(self._go.target, error) from error
