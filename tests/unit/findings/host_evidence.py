"""Counters of the kernel made by hand, before and after ten seconds."""

from __future__ import annotations

from typing import Any

from ebpfprof.findings.evidence import BeforeAndAfter
from ebpfprof.findings.host import CpuGroup, HostMoment, MachineMoment, ThreadMoment
from ebpfprof.findings.runtime import RuntimeMoment
from tests.unit.findings.evidence import LENGTH_NS

THREADS = 8
PROCESSORS = 4
BEFORE = 1_000
BEFORE_NS = 500_000_000_000


def host(*, cpus: float = 0.5, delayed: float = 0.0, **fields: Any) -> BeforeAndAfter[HostMoment]:  # noqa: ANN401 - those of moment()
    """A process that uses `cpus` processors, while `delayed` threads wait for one on average.

    Other fields are those of moment(), for the end.
    """
    begin = moment(**{**fields, **dict.fromkeys(_COUNTERS, 0)})
    return BeforeAndAfter(begin, moment(cpu_s=10 * cpus, delayed_s=10 * delayed, **fields))


def moment(
    *,
    cpu_s: float = 0.0,
    delayed_s: float = 0.0,
    switches: int = 0,
    others_s: float = 0.0,
    steal_s: float = 0.0,
    quota: float | None = None,
    throttled: int = 0,
    stopped_s: float = 0.0,
    **fields: Any,  # noqa: ANN401 - those of HostMoment
) -> HostMoment:
    """Counters: of the process, of the machine's four processors, of a group with a quota.

    All began to count before.
    """
    busy_s = cpu_s + others_s
    used_s = busy_s + steal_s
    is_begin = not cpu_s
    machine = MachineMoment(
        processors=PROCESSORS,
        busy_ns=BEFORE_NS + round(busy_s * 1e9),
        idle_ns=BEFORE_NS + (0 if is_begin else PROCESSORS * LENGTH_NS - round(used_s * 1e9)),
        steal_ns=BEFORE_NS + round(steal_s * 1e9),
    )
    group = CpuGroup(
        name="/pod",
        quota_cpus=quota,
        period_us=100_000,
        periods=BEFORE if is_begin else BEFORE + 100,
        throttled_periods=BEFORE + throttled,
        throttled_ns=BEFORE_NS + round(stopped_s * 1e9),
    )
    delayed_ns = BEFORE_NS + round(delayed_s * 1e9 / THREADS)
    thread = ThreadMoment(delayed_ns, BEFORE + switches // THREADS)
    plain: dict[str, Any] = {
        "cpu_ns": BEFORE_NS + round(cpu_s * 1e9),
        "affinity": PROCESSORS,
        "threads": dict.fromkeys(range(1, THREADS + 1), thread),
        "cpu_groups": (group,),
        "machine": machine,
    }
    return HostMoment(**(plain | fields))


_COUNTERS = ("switches", "others_s", "steal_s", "throttled", "stopped_s")


def processors(number: int) -> BeforeAndAfter[RuntimeMoment]:
    """A runtime with this GOMAXPROCS."""
    return BeforeAndAfter(RuntimeMoment(processors=number), RuntimeMoment(processors=number))
