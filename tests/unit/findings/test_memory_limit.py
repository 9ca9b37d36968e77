"""The memory limit of the container."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ebpfprof.findings import memory_limit as rule
from ebpfprof.findings.evidence import BeforeAndAfter, Evidence
from ebpfprof.findings.host import HostMoment, MemoryGroup
from tests.unit.findings.evidence import evidence

MIB = 1 << 20


def at(needed_mib: int, *, stalled_us: int = 0, **fields: Any) -> HostMoment:  # noqa: ANN401 - those of MemoryGroup
    plain: dict[str, Any] = {
        "name": "/pod",
        "limit_bytes": 256 * MIB,
        "used_bytes": 256 * MIB,
        "needed_bytes": needed_mib * MIB,
        "hits": 0,
        "kills": 0,
    }
    wide = MemoryGroup(name="/", limit_bytes=1000 * MIB, needed_bytes=500 * MIB)
    return HostMoment(
        cpu_ns=0,
        resident_bytes=needed_mib * MIB,
        memory_groups=(MemoryGroup(**(plain | fields)), wide),
        stalled_us={"memory": stalled_us},
    )


def between(before: HostMoment, after: HostMoment) -> Evidence:
    return evidence(host=BeforeAndAfter(before, after))


def test_a_container_near_its_limit() -> None:
    for of in (between(at(200), at(240)), between(at(240), at(200))):
        (finding,) = rule.find(of)
        assert finding.kind == "memory_limit"
        assert finding.title == "Memory: the container uses 94 % of its limit (256 MiB)."
    assert finding.lines == ("This process has 200 MiB in memory. The page cache is not counted.",)


def test_the_cache_of_files_may_fill_the_limit() -> None:
    of = between(at(128), at(128, hits=1000))
    assert list(rule.find(of)) == []
    assert rule.fine(of) == "memory 50 % of the limit"


def test_kills_and_stalls_are_reported() -> None:
    (killed,) = rule.find(between(at(10), at(10, kills=1)))
    assert killed.lines[-1] == "The OOM killer ended 1 of the container's processes meanwhile."
    (stalled,) = rule.find(between(at(10), at(10, hits=9, stalled_us=3_000_000)))
    assert stalled.lines[-1] == (
        "It reached the limit 9 times meanwhile; threads waited for memory 30 % of the time."
    )
    assert list(rule.find(between(at(10, kills=3), at(10, kills=3)))) == []


def test_code_that_is_read_again_and_again_is_reported() -> None:
    of = between(replace(at(240), major_faults=7), replace(at(240), major_faults=1007))
    (finding,) = rule.find(of)
    assert finding.lines[-1] == "Its threads waited for 1000 pages to be read from a disk."
    few = between(replace(at(240), major_faults=7), replace(at(240), major_faults=17))
    assert len(next(rule.find(few)).lines) == 1


def test_no_limit_is_no_fault() -> None:
    unknown = at(250, limit_bytes=None)
    of = between(unknown, unknown)
    assert list(rule.find(of)) == []
    assert list(rule.find(evidence())) == []
    assert rule.fine(evidence()) == ""
