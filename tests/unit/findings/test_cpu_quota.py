"""Throttling by a quota, and GOMAXPROCS beside what the container may use."""

from __future__ import annotations

import pytest

from ebpfprof.findings import cpu_quota as rule
from ebpfprof.findings.evidence import BeforeAndAfter, Evidence
from ebpfprof.findings.finding import Finding
from ebpfprof.findings.host import CpuGroup, HostMoment, Throttling
from tests.unit.findings.evidence import HANDLER, evidence, waits
from tests.unit.findings.host_evidence import host, moment, processors

REQUESTS = waits("running", "main.f", *HANDLER, mean=1)


def found(of: Evidence) -> list[Finding]:
    return list(rule.find(of))


def test_a_throttled_container() -> None:
    # It runs for 20 ms on two processors, then both are stopped for 80 ms.
    counters = host(cpus=0.4, quota=0.4, throttled=100, stopped_s=16.0)
    (finding,) = found(evidence(REQUESTS, host=counters, runtime=processors(4)))
    assert finding.kind == "throttling"
    assert finding.title == (
        "CPU quota: the container was throttled for 80 % of the time (0.40 CPUs)."
    )
    assert finding.lines == (
        "Stopped in 100 of 100 periods of 100 ms, for 80 ms on average.",
        "GOMAXPROCS is 4.",
    )
    assert finding.share == pytest.approx(0.8)


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_the_time_of_a_stop_does_not_depend_on_the_number_of_processors(threads: int) -> None:
    ran_ms = 50 / threads
    stopped_ns = round(threads * (100 - ran_ms) * 1e6)
    group = CpuGroup(name="/", quota_cpus=0.5, period_us=100_000)
    one = Throttling(group, 1, 1, stopped_ns, None)
    assert one.stop_ns == pytest.approx((100 - ran_ms) * 1e6)


def test_some_stops_are_no_fault() -> None:
    few = host(cpus=0.4, quota=2.0, throttled=4, stopped_s=0.3)
    short = host(cpus=0.4, quota=2.0, throttled=30, stopped_s=0.4)
    for counters in (few, short):
        of = evidence(REQUESTS, host=counters, runtime=processors(4))
        assert found(of) == []
        assert rule.fine(of).startswith("CPU quota: throttled ")


def test_gomaxprocs_above_the_quota() -> None:
    # 32 threads use up the quota within 6 ms of a period, and stand still for 94 ms.
    counters = host(cpus=1.2, quota=2.0, throttled=50, stopped_s=32 * 50 * 0.094)
    (finding,) = found(evidence(REQUESTS, host=counters, runtime=processors(32)))
    assert finding.kind == "gomaxprocs"
    assert finding.title == (
        "GOMAXPROCS is 32, above the CPU quota (2.0 CPUs): throttled for 47 % of the time."
    )
    assert finding.lines[1] == "It used 1.2 CPUs on average. Set GOMAXPROCS=2."


@pytest.mark.parametrize(
    ("quota", "number", "kind"),
    [
        (2.0, 8, "gomaxprocs"),
        (2.0, 3, "throttling"),
        (1.0, 2, "throttling"),  # as Go itself sets it
        (1.0, 3, "gomaxprocs"),
        (2.0, 4, "gomaxprocs"),
        (0.5, 8, "throttling"),  # one thread would be throttled, too
    ],
)
def test_which_of_both_is_the_cause(quota: float, number: int, kind: str) -> None:
    counters = host(cpus=0.9 * quota, quota=quota, throttled=90, stopped_s=90 * 0.14)
    (finding,) = found(evidence(REQUESTS, host=counters, runtime=processors(number)))
    assert finding.kind == kind


def queue(mean: float) -> Evidence:
    runnable = waits("runnable", "main.f", *HANDLER, mean=mean)
    return evidence(REQUESTS, runnable, host=host(cpus=0.95), runtime=processors(1))


def test_gomaxprocs_below_the_processors() -> None:
    (finding,) = found(queue(3))
    assert finding.kind == "gomaxprocs"
    assert finding.title == (
        "GOMAXPROCS is 1, but 4.0 CPUs could be used: goroutines wait for a processor for 75 % of "
        "the time of requests."
    )
    assert found(queue(0.1)) == []


def test_a_small_gomaxprocs_that_is_enough() -> None:
    runnable = waits("runnable", "main.f", *HANDLER, mean=3)
    idle = evidence(REQUESTS, runnable, host=host(cpus=0.4), runtime=processors(1))
    pinned = evidence(REQUESTS, runnable, host=host(cpus=1, affinity=1), runtime=processors(1))
    limited = evidence(REQUESTS, runnable, host=host(cpus=1, quota=1.5), runtime=processors(1))
    for of in (idle, pinned, limited):
        assert found(of) == []


def test_the_tightest_quota_counts() -> None:
    groups = [CpuGroup(name=name, quota_cpus=q) for name, q in (("/a/b", None), ("/a", 1.5))]
    assert moment(cpu_groups=(*groups, CpuGroup(name="/", quota_cpus=8))).quota_cpus == 1.5
    assert moment(cpu_groups=tuple(groups)).processors == 1.5
    assert moment(cpu_groups=()).processors == 4


def test_what_is_unknown_is_no_fault() -> None:
    nothing = BeforeAndAfter(HostMoment(cpu_ns=0), HostMoment(cpu_ns=0))
    for of in (evidence(REQUESTS), evidence(REQUESTS, host=nothing, runtime=processors(1))):
        assert found(of) == []
        assert rule.fine(of) == ""
