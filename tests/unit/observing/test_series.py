"""What is shown of a moment: values now, and rates since the moment before."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from ebpfprof.findings.host import HostMoment, MemoryGroup
from ebpfprof.findings.runtime import RuntimeMoment
from ebpfprof.observing.series import Collections, CpuUse, MemoryUse, ProcessMoment, point_of
from tests.unit.findings import host_evidence, runtime_evidence
from tests.unit.findings.evidence import LENGTH_NS

TIME_S: Final = 1_790_000_000.0
STATES: Final = {"running": 2, "lock": 5}


def moments() -> tuple[ProcessMoment, ProcessMoment]:
    """Ten seconds with half a processor, throttled, and five collections that took 1 s."""
    host = host_evidence.host(cpus=0.5, quota=0.5, throttled=90, stopped_s=4.5)
    runtime = runtime_evidence.collections(5, paused_ns=LENGTH_NS // 10)
    before = ProcessMoment(at_ns=7, host=host.before, runtime=runtime.before)
    after = ProcessMoment(
        at_ns=7 + LENGTH_NS,
        host=replace(
            host.after,
            resident_bytes=3000,
            memory_groups=(
                MemoryGroup(name="/a/b", needed_bytes=900),
                MemoryGroup(name="/a", limit_bytes=1000, needed_bytes=910),
                MemoryGroup(name="/", limit_bytes=5000, needed_bytes=2000),
            ),
        ),
        runtime=replace(runtime.after, processors=4),
        goroutines=STATES,
    )
    return before, after


def test_rates_are_of_the_time_since_the_moment_before() -> None:
    before, after = moments()
    point = point_of(before, after, TIME_S)
    assert (point.time_s, point.seconds, point.goroutines) == (TIME_S, 10.0, STATES)
    assert point.cpu.used == pytest.approx(0.5)
    assert (point.cpu.quota, point.cpu.gomaxprocs) == (0.5, 4)
    # 90 of 100 periods, each stopped until its end.
    assert point.cpu.throttled == pytest.approx(0.9 * 0.5)
    assert point.collections == Collections(count=5, stopped=0.1)
    mib = runtime_evidence.MIB
    assert point.memory == MemoryUse(
        heap_bytes=50 * mib,
        goal_bytes=80 * mib,
        resident_bytes=3000,
        group_used_bytes=910,
        group_limit_bytes=1000,
    )


def test_the_first_moment_has_values_and_no_rates() -> None:
    _, after = moments()
    point = point_of(None, after, TIME_S)
    assert point.seconds is None
    assert point.collections is None
    assert point.cpu == CpuUse(quota=0.5, gomaxprocs=4)
    assert point.memory.resident_bytes == 3000
    assert point_of(after, after, TIME_S).seconds is None  # no time has passed


def test_what_could_not_be_read_is_none() -> None:
    host = host_evidence.host(cpus=2.0)
    before = ProcessMoment(at_ns=0, host=host.before, runtime=RuntimeMoment())
    now = ProcessMoment(at_ns=LENGTH_NS, host=host.after, runtime=RuntimeMoment())
    point = point_of(before, now, TIME_S)
    assert point.cpu == CpuUse(used=2.0)
    assert point.memory == MemoryUse()
    assert (point.goroutines, point.collections) == (None, None)
    other = ProcessMoment(at_ns=LENGTH_NS, host=HostMoment(cpu_ns=0))
    assert point_of(None, other, TIME_S).memory == MemoryUse()
