"""What the files of control groups of both versions say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ebpfprof.findings.host import CpuGroup, MemoryGroup
from ebpfprof.observing.groups import cpu_group, memory_group, stalled_us
from ebpfprof.process.control_groups import ControlGroup

# Of a container of Docker on Linux 6.1, with --cpus 0.5 --memory 256m.
NEW_CPU: Final = {
    "cpu.max": "50000 100000\n",
    "cpu.stat": "usage_usec 3021546\nuser_usec 2990000\nsystem_usec 31546\nnr_periods 61\n"
    "nr_throttled 58\nthrottled_usec 2907123\nnr_bursts 0\nburst_usec 0\n",
}
NEW_MEMORY: Final = {
    "memory.max": "268435456\n",
    "memory.high": "max\n",
    "memory.current": "200000000\n",
    "memory.stat": "anon 150000000\nfile 40000000\nkernel 5000000\nshmem 4096\n"
    "inactive_file 30000000\nactive_file 9000000\nslab_reclaimable 1000000\n",
    "memory.events": "low 0\nhigh 3\nmax 41\noom 1\noom_kill 1\noom_group_kill 0\n",
}
OLD_CPU: Final = {
    "cpu.cfs_quota_us": "50000\n",
    "cpu.cfs_period_us": "100000\n",
    "cpu.stat": "nr_periods 61\nnr_throttled 58\nthrottled_time 2907123000\n",
    "cpuacct.usage": "3021546000\n",
}
OLD_MEMORY: Final = {
    "memory.limit_in_bytes": "268435456\n",
    "memory.usage_in_bytes": "200000000\n",
    "memory.failcnt": "44\n",
    "memory.stat": "cache 1\nrss 1\ninactive_file 7\nactive_file 8\nhierarchical_memory_limit 1\n"
    "total_cache 40000000\ntotal_inactive_file 30000000\ntotal_active_file 10000000\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
}
CPU: Final = CpuGroup(
    name="/a",
    quota_cpus=0.5,
    period_us=100_000,
    periods=61,
    throttled_periods=58,
    throttled_ns=2_907_123_000,
    used_ns=3_021_546_000,
)
MEMORY: Final = MemoryGroup(
    name="/a",
    limit_bytes=256 << 20,
    used_bytes=200_000_000,
    needed_bytes=160_000_000,
    hits=44,
    kills=1,
)


def group(folder: Path, files: Mapping[str, str], *, is_unified: bool) -> ControlGroup:
    for name, text in files.items():
        (folder / name).write_text(text)
    return ControlGroup("/a", str(folder), is_unified)


def test_the_quota_in_both_versions(tmp_path: Path) -> None:
    assert cpu_group(group(tmp_path, NEW_CPU, is_unified=True)) == CPU
    assert cpu_group(group(tmp_path, OLD_CPU, is_unified=False)) == CPU


def test_the_memory_in_both_versions(tmp_path: Path) -> None:
    assert memory_group(group(tmp_path, NEW_MEMORY, is_unified=True)) == MEMORY
    assert memory_group(group(tmp_path, OLD_MEMORY, is_unified=False)) == MEMORY


def test_groups_without_limits(tmp_path: Path) -> None:
    new = group(tmp_path, {"cpu.max": "max 100000\n", "memory.max": "max\n"}, is_unified=True)
    assert cpu_group(new).quota_cpus is None
    assert memory_group(new).limit_bytes is None
    old = {"cpu.cfs_quota_us": "-1\n", "memory.limit_in_bytes": "9223372036854771712\n"}
    assert cpu_group(group(tmp_path, old, is_unified=False)).quota_cpus is None
    assert memory_group(group(tmp_path, old, is_unified=False)).limit_bytes is None


def test_the_lower_limit_counts(tmp_path: Path) -> None:
    files = {**NEW_MEMORY, "memory.high": "200000000\n"}
    assert memory_group(group(tmp_path, files, is_unified=True)).limit_bytes == 200_000_000


def test_what_is_missing_is_unknown(tmp_path: Path) -> None:
    for is_unified in (False, True):
        empty = group(tmp_path, {}, is_unified=is_unified)
        assert cpu_group(empty) == CpuGroup(name="/a")
        assert memory_group(empty) == MemoryGroup(name="/a")


def test_stalls_are_those_of_the_innermost_group_that_counts_them(tmp_path: Path) -> None:
    text = "some avg10=1.5 avg60=0 avg300=0 total={}\nfull avg10=0 avg60=0 avg300=0 total=7\n"
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder, files in (
        (inner, {"memory.pressure": text.format(41)}),
        (outer, {"memory.pressure": text.format(99), "io.pressure": text.format(12)}),
    ):
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text(content)
    groups = [ControlGroup(each.name, str(each), True) for each in (inner, outer)]
    assert stalled_us(groups) == {"memory": 41, "io": 12}
