"""What control groups allow and count, by the files of both versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.findings.host import CpuGroup, MemoryGroup
from ebpfprof.process.kernel_numbers import keyed, number, pressure, quota

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ebpfprof.process.control_groups import ControlGroup

_US: Final = 1000
_RESOURCES: Final = ("memory", "io")
_UNLIMITED: Final = 1 << 60
"""Version 1 has no word for "no limit": the number is the largest one of pages."""
_CACHE: Final = ("inactive_file", "active_file", "slab_reclaimable")
"""In memory.stat: what the kernel can reclaim without swap."""


def cpu_group(group: ControlGroup) -> CpuGroup:
    """The quota of a group, and how it was throttled.

    Linux kernel/sched/core.c: cpu_cfs_stat_show for version 1, cpu_extra_stat_show for 2.
    """
    counts = keyed(group.read("cpu.stat"))
    if group.is_unified:
        limit = quota(group.read("cpu.max"))
        quota_us, period_us = limit or (None, None)
        throttled_us, used_us = counts.get("throttled_usec"), counts.get("usage_usec")
        throttled_ns = None if throttled_us is None else _US * throttled_us
        used_ns = None if used_us is None else _US * used_us
    else:
        quota_us = number(group.read("cpu.cfs_quota_us"))  # -1 without a quota: no number
        period_us = number(group.read("cpu.cfs_period_us"))
        throttled_ns = counts.get("throttled_time")
        # Of the controller cpuacct, which is mounted with cpu on most machines.
        used_ns = number(group.read("cpuacct.usage"))
    return CpuGroup(
        name=group.name,
        quota_cpus=quota_us / period_us if quota_us and period_us else None,
        period_us=period_us,
        periods=counts.get("nr_periods"),
        throttled_periods=counts.get("nr_throttled"),
        throttled_ns=throttled_ns,
        used_ns=used_ns,
    )


def memory_group(group: ControlGroup) -> MemoryGroup:
    """The limit of a group, its memory, and how much of that it can't do without.

    Linux mm/memcontrol.c, memcg_stat_format, and mm/memcontrol-v1.c, memcg1_stat_format.
    """
    parts = keyed(group.read("memory.stat"))
    if group.is_unified:
        limits = [number(group.read(file)) for file in ("memory.max", "memory.high")]
        used, cache = number(group.read("memory.current")), parts
        events = keyed(group.read("memory.events"))
        hits = events["max"] + events.get("high", 0) if "max" in events else None
    else:
        limits = [number(group.read("memory.limit_in_bytes"))]
        used = number(group.read("memory.usage_in_bytes"))
        # The numbers without total_ are of the group without the groups in it.
        cache = {name.removeprefix("total_"): value for name, value in parts.items()}
        events = keyed(group.read("memory.oom_control"))
        hits = number(group.read("memory.failcnt"))
    return MemoryGroup(
        name=group.name,
        limit_bytes=min((limit for limit in limits if limit and limit < _UNLIMITED), default=None),
        used_bytes=used,
        needed_bytes=_needed(used, cache),
        hits=hits,
        kills=events.get("oom_kill"),
    )


def stalled_us(groups: Sequence[ControlGroup]) -> Mapping[str, int]:
    """For how long some thread waited for "memory" and "io" (Documentation/accounting/psi.rst).

    Of the innermost of these groups that counts it, the first one, else of the machine.
    """
    stalls = {}
    for resource in _RESOURCES:
        texts = (group.read(f"{resource}.pressure") for group in groups)
        first = next((totals for text in texts if (totals := pressure(text))), None)
        totals = first or pressure(_of_machine(resource))
        if "some" in totals:
            stalls[resource] = totals["some"]
    return stalls


def _of_machine(resource: str) -> bytes:
    try:
        with open(f"/proc/pressure/{resource}", "rb") as file:
            return file.read()
    except OSError:  # PSI is off, or this kernel has none
        return b""


def _needed(used: int | None, parts: Mapping[str, int]) -> int | None:
    """What a group uses without the page cache; None if either is unknown."""
    if used is None or _CACHE[0] not in parts:
        return None
    return max(0, used - sum(parts.get(name, 0) for name in _CACHE))
