"""What is read of the runtime's counters, against what the program itself reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.findings.runtime import RuntimeMoment
from ebpfprof.observing.heap_growth import HeapGrowthReader
from ebpfprof.observing.runtime import RuntimeReader
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.time_histogram import TimeHistogram
from tests.builds import NEWEST, versions
from tests.differential.test_heap import EVERY_ALLOCATION, order, running
from tests.go_target import inspect
from tests.targets_run import Target
from tests.toolchains import toolchain

COUNTERS = Path(__file__).parent.parent / "targets" / "counters"
PROCESSORS, TIMERS = 3, 100
FIRST_WITH_CPU, FIRST_WITH_STOPS = 21, 22


@pytest.fixture(scope="module", params=versions())
def counted(request: pytest.FixtureRequest) -> tuple[int, RuntimeMoment, dict[str, Any]]:
    """The minor version, what was read of a program that waits, and what that reports."""
    minor = request.param
    with (
        Target.start(
            toolchain(minor).build(COUNTERS), env={"GOMAXPROCS": str(PROCESSORS)}
        ) as target,
        Process(target.pid) as process,
    ):
        reader = RuntimeReader(inspect(process))
        target.ask("work", "done")
        before = reader.read()
        reported = json.loads(target.ask("read", "{"))
    return int(minor.partition(".")[2]), before, reported


Counted = tuple[int, RuntimeMoment, dict[str, Any]]


def same_histogram(read: TimeHistogram | None, reported: dict[str, Any], *, more: int = 0) -> None:
    """Whether it has as many, the program's own few since then aside, and the same 99 of 100."""
    assert read is not None
    assert reported["Total"] - more <= read.total <= reported["Total"]
    assert reported["Low"] * 1e9 <= read.quantile_ns(0.99) * 1.3
    assert read.quantile_ns(0.99) <= reported["High"] * 1e9 * 1.3


def test_waits_to_run_are_those_of_the_metric(counted: Counted) -> None:
    _, read, reported = counted
    assert read.waits_to_run is not None
    assert read.waits_to_run.total > 100
    same_histogram(read.waits_to_run, reported["/sched/latencies:seconds"], more=5)


def test_cpu_time_of_collections_is_that_of_the_metrics(counted: Counted) -> None:
    minor, read, reported = counted
    if minor < FIRST_WITH_CPU:
        assert read.collector_cpu is None
        return
    cpu = read.collector_cpu
    assert cpu is not None
    for name, value in (
        ("/cpu/classes/gc/mark/assist", cpu.assist_ns),
        ("/cpu/classes/gc/mark/dedicated", cpu.dedicated_ns),
        ("/cpu/classes/gc/mark/idle", cpu.idle_workers_ns),
        ("/cpu/classes/gc/pause", cpu.paused_ns),
        ("/cpu/classes/idle", cpu.idle_ns),
        ("/cpu/classes/user", cpu.user_ns),
        ("/cpu/classes/total", cpu.total_ns),
    ):
        assert value / 1e9 == pytest.approx(reported[f"{name}:cpu-seconds"], abs=1e-9)
    assert cpu.collections_ns > 0


def test_waits_for_locks_are_those_of_the_metric(counted: Counted) -> None:
    _, read, reported = counted
    if "/sync/mutex/wait/total:seconds" not in reported:
        assert read.mutex_wait_ns is None
        return
    assert read.mutex_wait_ns is not None
    # Since Go 1.22 the metric also has the waits for locks of the runtime, which are much shorter
    # unless a thread that holds one has to wait for a CPU.
    total_s = reported["/sync/mutex/wait/total:seconds"]
    assert total_s / 2 < read.mutex_wait_ns / 1e9 < total_s + 1e-6
    assert total_s > 0.01


def test_stops_of_the_world_are_those_of_the_metrics(counted: Counted) -> None:
    minor, read, reported = counted
    if minor < FIRST_WITH_STOPS:
        assert read.stops_to_collect is None
        return
    same_histogram(read.stops_to_collect, reported["/sched/pauses/total/gc:seconds"])
    assert read.other_stops is not None
    assert read.other_stops.total <= reported["/sched/pauses/total/other:seconds"]["Total"]


def test_collections_and_their_pauses_are_those_of_the_runtime(counted: Counted) -> None:
    _, read, reported = counted
    assert read.memory is not None
    assert read.pauses_ns is not None
    collector = read.memory.collector
    assert collector.cycles == reported["/gc/cycles/total:gc-cycles"] >= 3
    newest = [read.pauses_ns[(collector.cycles - 1 - at) % 256] for at in range(collector.cycles)]
    assert newest[:256] == reported["pauses"]


def test_processors_timers_and_threads_are_counted(counted: Counted) -> None:
    _, read, reported = counted
    assert read.processors == PROCESSORS
    assert reported.get("/sched/gomaxprocs:threads", PROCESSORS) == PROCESSORS  # not in Go 1.18
    assert read.timers is not None
    assert TIMERS <= read.timers <= TIMERS + 5
    assert read.threads is not None
    assert read.threads <= reported["threads"] + 1
    assert read.threads >= PROCESSORS


def test_the_heap_is_that_of_the_last_collection() -> None:
    with (
        Target.start(toolchain(NEWEST).build(COUNTERS)) as target,
        Process(target.pid) as process,
    ):
        reader = RuntimeReader(inspect(process))
        target.ask("work", "done")
        heap, moment = reader.heap(), reader.read()
    assert heap is not None
    assert moment.memory is not None
    collector = moment.memory.collector
    assert (heap.cycles, heap.marked) == (collector.cycles, collector.marked)
    assert heap.live <= collector.live  # it grows until the next collection


@pytest.mark.parametrize("minor", versions())
def test_the_stack_whose_allocations_stay_is_found(minor: str) -> None:
    with (
        running(minor, rate=EVERY_ALLOCATION, GOGC="off") as target,
        Process(target.pid) as process,
    ):
        for command in ("turn", "gc"):
            order(target, command)
        reader = HeapGrowthReader(inspect(process))
        reader.start()
        for _ in range(4):  # Go publishes what it found with a delay of two collections
            for command in ("leak 10", "turn", "make 3", "drop", "gc"):
                order(target, command)
        first, *_ = reader.growing()
    assert first.frames[0].function == "main.leak"
    assert first.bytes >= 2 * 10 * 4096


def test_without_a_memory_profile_the_largest_types_are_found() -> None:
    with (
        Target.start(toolchain(NEWEST).build(COUNTERS)) as target,
        Process(target.pid) as process,
    ):
        reader = HeapGrowthReader(inspect(process))
        reader.start()
        target.ask("work", "done")
        assert reader.growing() == ()
        assert "[]uint8" in {one.name for one in reader.types()}
