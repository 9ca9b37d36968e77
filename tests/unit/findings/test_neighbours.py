"""Threads that could run but got no processor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.findings import neighbours as rule
from ebpfprof.findings.evidence import BeforeAndAfter
from ebpfprof.findings.finding import Finding
from ebpfprof.findings.host import HostMoment
from tests.unit.findings.evidence import HANDLER, READ, evidence, waits
from tests.unit.findings.host_evidence import host, processors

RUNS = waits("running", "main.f", *HANDLER, mean=2)
READS = waits("IO wait", *READ, "main.f", *HANDLER, mean=3)


def found(counters: BeforeAndAfter[HostMoment]) -> list[Finding]:
    of = evidence(RUNS, READS, host=counters, runtime=processors(4))
    return list(rule.find(of))


def test_a_busy_machine() -> None:
    (finding,) = found(host(cpus=0.5, delayed=1.5, others_s=35))
    assert finding.kind == "neighbours"
    assert finding.title == "Busy machine: waiting for a CPU takes 30 % of the time of requests."
    assert finding.lines == (
        "Other processes use 88 % of the machine's CPU time. Threads of this one waited 1.5 s a "
        "second.",
    )


def test_waits_for_a_processor_that_are_no_fault_of_neighbours() -> None:
    alone = host(cpus=3.9, delayed=1.5)
    idle = host(cpus=0.5, delayed=1.5, others_s=20)
    little = host(cpus=0.5, delayed=0.05, others_s=35)
    throttled = host(cpus=0.5, delayed=3, others_s=35, quota=0.5, throttled=100, stopped_s=9)
    for counters in (alone, idle, little, throttled):
        assert found(counters) == []


def test_waits_of_other_kinds_are_longer() -> None:
    reads = waits("IO wait", *READ, "main.f", *HANDLER, mean=20)
    of = evidence(RUNS, reads, host=host(cpus=0.5, delayed=1.5, others_s=35))
    assert list(rule.find(of)) == []
    assert rule.fine(of) == "threads waiting for a CPU 6.8 %"


def test_waits_beyond_throttling_count() -> None:
    assert found(host(cpus=0.5, delayed=3, others_s=35, quota=0.5, throttled=9, stopped_s=1))


def test_steal() -> None:
    (finding,) = found(host(cpus=2, others_s=2, steal_s=8))
    assert finding.kind == "steal"
    assert finding.title == "Steal: the host of this virtual machine took 27 % of its CPU time."
    assert finding.share == pytest.approx(8 / 30 * 0.4)
    assert found(host(cpus=2, others_s=2, steal_s=1)) == []
    assert found(host(cpus=0.05, others_s=2, steal_s=8)) == []


def test_what_is_unknown_is_no_fault() -> None:
    nothing = BeforeAndAfter(HostMoment(cpu_ns=0), HostMoment(cpu_ns=0))
    assert found(nothing) == []
    assert rule.fine(evidence(RUNS, host=nothing)) == ""
    assert rule.fine(evidence(RUNS)) == ""


def test_a_machine_whose_counters_stand_still_is_no_fault() -> None:
    counters = host(cpus=2)
    still = replace(counters.after, machine=counters.before.machine)
    assert found(BeforeAndAfter(counters.before, still)) == []
