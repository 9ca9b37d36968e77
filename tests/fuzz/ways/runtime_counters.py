"""Ways in through the counters of the scheduler, of the collector's CPU time and of timers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from ebpfprof.goruntime.goroutines.scheduler_counters import SchedulerReader
from ebpfprof.goruntime.heap.collector_cpu import CollectorCpuReader
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.time_histogram import TimeHistogram
from symbolizer.codeanalysis.globals import allp_address, cpu_statistics_address, scheduler_address
from tests.fuzz.driver import Parser
from tests.fuzz.ways import memory
from tests.fuzz.ways.made_up import made_up_process


@cache
def counter_seeds() -> Sequence[bytes]:
    """What the CPU statistics, the list of processors and the scheduler have, one after another."""
    layout = memory._go().binary.layout
    words = layout.size("schedt") // 8
    rising = struct.pack("<11Q3Q", *range(1000, 1011), 0, 4, 4)
    return [rising + bytes(words * 8), rising + struct.pack(f"<{words}Q", *range(words))]


def ask_counters(data: bytes) -> None:
    go = memory._go()
    layout, bias = go.binary.layout, go.load_bias
    statistics, list_, scheduler = (
        find(go.binary) for find in (cpu_statistics_address, allp_address, scheduler_address)
    )
    assert statistics
    assert list_
    assert scheduler
    process = made_up_process(
        go,
        [
            (statistics + bias, data[: layout.size("cpuStats")]),
            (list_ + bias, data[88:112]),
            (scheduler + bias, data[112 : 112 + layout.size("schedt")]),
        ],
    )
    with suppress(UnreadableMemory):  # a typed error is an answer, too
        assert CollectorCpuReader(process).read() is not None
    with suppress(UnreadableMemory):  # a typed error is an answer, too
        found = SchedulerReader(process).read()
        assert found is not None
        _check(found.waits_to_run)
    with suppress(UnreadableMemory):  # a typed error is an answer, too
        assert (SchedulerReader(process).processors() or 0) >= 0


def _check(histogram: TimeHistogram) -> None:
    assert 0 <= histogram.quantile_ns(0.5) <= histogram.quantile_ns(0.99) <= histogram.longest_ns()
    assert (histogram - histogram).total == 0


RUNTIME_COUNTERS = (
    Parser(
        "runtime-counters",
        (
            "ebpfprof.goruntime.goroutines.scheduler_counters",
            "ebpfprof.goruntime.heap.collector_cpu",
            "ebpfprof.profile.time_histogram",
        ),
        ask_counters,
        counter_seeds,
        allowed=(),
    ),
)
