"""Where the control groups of a process are, in both versions and in containers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ebpfprof.process.control_groups import (
    ControlGroups,
    GroupMount,
    group_paths,
    mounts,
)
from ebpfprof.process.proc_files import ProcFiles

MOUNTINFO = (
    b"30 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    b"31 24 0:28 /../a /sys/fs/c\\040d/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    b"32 24 0:29 / /proc rw - proc proc rw\n"
)


class Files(ProcFiles):
    """The files of a process with this /proc/PID/cgroup."""

    def __init__(self, cgroup: bytes) -> None:
        self._cgroup = cgroup

    def read(self, name: str) -> bytes:
        assert name == "cgroup"
        return self._cgroup


def names(mounted: Sequence[GroupMount], cgroup: bytes, controller: str) -> list[str]:
    return [group.name for group in ControlGroups(mounted).of(Files(cgroup), controller)]


def test_mounts_have_roots_and_controllers() -> None:
    assert list(mounts(MOUNTINFO, "/proc/1/root")) == [
        GroupMount("/", "/proc/1/root/sys/fs/cgroup", (), is_unified=True),
        GroupMount(
            "/../a", "/proc/1/root/sys/fs/c d/cpu", ("rw", "cpu", "cpuacct"), is_unified=False
        ),
    ]


def test_paths_have_controllers() -> None:
    text = b"12:name=systemd:/s\n4:cpu,cpuacct:/a:b\n0::/x y\nx\n:\n1:cpu\n2::/no\n5:memory:no\n"
    assert group_paths(text) == [
        (("name=systemd",), "/s"),
        (("cpu", "cpuacct"), "/a:b"),
        ((), "/x y"),
    ]


@pytest.mark.parametrize(
    ("root", "path", "below"),
    [
        ("/", "/a/b", "a/b"),
        ("/", "/", ""),
        ("/a", "/a/b", "b"),
        ("/a", "/a", ""),
        ("/a", "/ab", None),
        ("/a", "/", None),
        ("/", "/../b", None),
        ("/..", "/../b", "b"),
        ("/..", "/../b/../c", None),
    ],
)
def test_a_path_is_below_the_root_of_a_mount(root: str, path: str, below: str | None) -> None:
    assert GroupMount(root, "/m", (), is_unified=True).group(path) == below


def test_all_groups_around_are_found(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    unified = GroupMount("/", str(tmp_path), (), is_unified=True)
    assert names([unified], b"0::/a/b\n", "cpu") == ["/a/b", "/a", "/"]
    assert names([unified], b"0::/gone (deleted)\n", "cpu") == []
    assert names([], b"0::/a/b\n", "cpu") == []
    assert names([unified], b"", "cpu") == []


def test_a_controller_is_in_one_version(tmp_path: Path) -> None:
    (tmp_path / "new/a").mkdir(parents=True)
    (tmp_path / "old/b").mkdir(parents=True)
    mounted = [
        GroupMount("/", str(tmp_path / "new"), (), is_unified=True),
        GroupMount("/", str(tmp_path / "old"), ("cpu", "cpuacct"), is_unified=False),
    ]
    both = b"4:cpu,cpuacct:/b\n0::/a\n"
    assert names(mounted, both, "cpu") == ["/b", "/"]
    assert names(mounted, both, "memory") == ["/a", "/"]
    assert names(mounted, both, "") == ["/a", "/"]
    assert names(mounted[:1], both, "cpu") == []


def test_the_mount_with_most_groups_is_used(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    part = GroupMount("/a", str(tmp_path / "a"), (), is_unified=True)
    whole = GroupMount("/", str(tmp_path), (), is_unified=True)
    assert names([part, whole], b"0::/a/b\n", "cpu") == ["/a/b", "/a", "/"]
    assert names([part], b"0::/a/b\n", "cpu") == ["/b", "/"]


def test_files_of_a_group(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/cpu.max").write_text("max 100000\n")
    (group, _) = ControlGroups([GroupMount("/", str(tmp_path), (), is_unified=True)]).of(
        Files(b"0::/a\n"), "cpu"
    )
    assert group.read("cpu.max") == b"max 100000\n"
    assert group.read("cpu.stat") == b""
