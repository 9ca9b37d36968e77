"""The memory statistics of processes for Prometheus, under the names of Go's own collector.

As github.com/prometheus/client_golang names them (collectors/go_collector). Each scrape reads the
processes that are open already, which takes about 0.3 ms each, and opens a few more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from symbolizer import SymbolizerError
from symbolizer.codeanalysis.memory_globals import memory_globals

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcesses
    from ebpfprof.profile.memory import MemoryStatistics

_OF_PROCESS: Final = ("pid", "command")
_OPENED_AT_ONCE: Final = 4
_Number = Callable[["MemoryStatistics"], float | None]
_GAUGES: Final[tuple[tuple[str, str, _Number], ...]] = (
    ("go_memstats_alloc_bytes", "Bytes of objects in use.", lambda s: s.allocated),
    ("go_memstats_heap_alloc_bytes", "Bytes of objects in use.", lambda s: s.allocated),
    ("go_memstats_heap_objects", "Objects in use.", lambda s: s.objects),
    ("go_memstats_heap_sys_bytes", "Bytes of heap from the kernel.", lambda s: s.heap_mapped),
    ("go_memstats_heap_inuse_bytes", "Bytes of spans in use.", lambda s: s.heap_in_use),
    ("go_memstats_heap_idle_bytes", "Bytes of heap that are free.", lambda s: s.idle),
    ("go_memstats_heap_released_bytes", "Bytes that the kernel has back.", lambda s: s.released),
    ("go_memstats_stack_inuse_bytes", "Bytes of stacks in use.", lambda s: s.stacks_in_use),
    ("go_memstats_stack_sys_bytes", "Bytes of stacks.", lambda s: s.stacks_mapped),
    ("go_memstats_mspan_inuse_bytes", "Bytes of span structs in use.", lambda s: s.spans_in_use),
    ("go_memstats_mspan_sys_bytes", "Bytes of span structs.", lambda s: s.spans_mapped),
    ("go_memstats_mcache_inuse_bytes", "Bytes of caches in use.", lambda s: s.caches_in_use),
    ("go_memstats_mcache_sys_bytes", "Bytes of caches.", lambda s: s.caches_mapped),
    ("go_memstats_buck_hash_sys_bytes", "Bytes of profile buckets.", lambda s: s.profile_buckets),
    ("go_memstats_gc_sys_bytes", "Bytes of the collector's data.", lambda s: s.collector_mapped),
    ("go_memstats_other_sys_bytes", "Bytes of other runtime data.", lambda s: s.other_mapped),
    ("go_memstats_sys_bytes", "Bytes from the kernel in all.", lambda s: s.mapped),
    ("go_memstats_next_gc_bytes", "The heap at the next collection.", lambda s: s.collector.goal),
    (
        "go_memstats_last_gc_time_seconds",
        "When the last collection ended, Unix time.",
        lambda s: s.collector.last_unix_ns / 1e9,
    ),
    ("go_gc_gogc_percent", "GOGC, -1 for off.", lambda s: s.collector.percent),
    ("go_gc_gomemlimit_bytes", "GOMEMLIMIT.", lambda s: s.collector.limit),
)
_COUNTERS: Final[tuple[tuple[str, str, _Number], ...]] = (
    ("go_memstats_mallocs", "Objects allocated so far.", lambda s: s.mallocs),
    ("go_memstats_frees", "Objects freed so far.", lambda s: s.frees),
)
# OpenMetrics allows no counter beside the gauge of that name.
_UNTYPED: Final[tuple[tuple[str, str, _Number], ...]] = (
    ("go_memstats_alloc_bytes_total", "Bytes allocated so far.", lambda s: s.total_allocated),
)


class MemoryMetrics(Collector):
    """Reads the processes of a manager at each scrape."""

    def __init__(self, manager: Manager, processes: OpenProcesses) -> None:
        self._manager, self._processes = manager, processes
        self._readers: dict[RecordedProcess, tuple[ExitStack, MemoryStatisticsReader | None]] = {}
        self._found: dict[RecordedProcess, MemoryStatistics] = {}

    def read(self) -> None:
        """Read all processes that are open, and open some more. Blocks for a few milliseconds."""
        running = [process for process in self._manager.processes if process.ending is None]
        for process in self._readers.keys() - set(running):
            self._close(process)
        for process in [process for process in running if process not in self._readers][
            :_OPENED_AT_ONCE
        ]:
            self._readers[process] = self._opened(process.pid)
        self._found = {}
        for process, (_, reader) in list(self._readers.items()):
            try:
                if reader:
                    self._found[process] = reader.read()
            except EbpfprofError:
                self._close(process)

    def collect(self) -> Iterable[Metric]:
        """The metrics as of the last read()."""
        pauses = SummaryMetricFamily(
            "go_gc_duration_seconds", "Pauses of collections.", labels=_OF_PROCESS
        )
        for process, found in self._found.items():
            gc = found.collector
            pauses.add_metric((str(process.pid), process.name), gc.cycles, gc.paused_ns / 1e9)
        yield pauses
        for kind, rows in (
            (GaugeMetricFamily, _GAUGES),
            (CounterMetricFamily, _COUNTERS),
            (UnknownMetricFamily, _UNTYPED),
        ):
            for name, text, number in rows:
                metric = kind(name, text, labels=_OF_PROCESS)
                for process, found in self._found.items():
                    value = number(found)
                    if value is not None:
                        metric.add_metric((str(process.pid), process.name), value)
                yield metric

    def _close(self, process: RecordedProcess) -> None:
        held, _ = self._readers.pop(process)
        held.close()

    def _opened(self, pid: int) -> tuple[ExitStack, MemoryStatisticsReader | None]:
        """What holds a process open, and its reader; None for a program that we can't read."""
        held = ExitStack()
        # A process that we can't read has no such metrics.
        with suppress(EbpfprofError, SymbolizerError, struct.error), ExitStack() as opening:
            process = opening.enter_context(self._processes.open(pid))
            binary, bias = process.binary(any_version=True), process.load_bias(any_version=True)
            reader = MemoryStatisticsReader(
                process.target.memory, binary, memory_globals(binary), bias
            )
            held = opening.pop_all()
            return held, reader
        return held, None
