"""Ways in through what the kernel counts: text of /proc and of control groups."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ebpfprof.observing.groups import cpu_group, memory_group
from ebpfprof.process.control_groups import ControlGroup, ControlGroups, group_paths, mounts
from ebpfprof.process.kernel_numbers import (
    keyed,
    major_faults,
    number,
    pressure,
    processor_ticks,
    quota,
    run_delay_ns,
    start_ticks,
)
from ebpfprof.process.proc_files import ProcFiles
from tests.fuzz.driver import Parser
from tests.fuzz.ways.text import CGROUPS
from tests.unit.observing.test_groups import NEW_CPU, NEW_MEMORY, OLD_CPU, OLD_MEMORY
from tests.unit.process.test_control_groups import MOUNTINFO
from tests.unit.process.test_kernel_numbers import PROCESSORS, STAT, STATUS

_MOST: Final = 1 << 64


class _Group(ControlGroup):
    """A group whose every file has the input as content."""

    def read(self, file: str) -> bytes:
        return self.folder.encode("utf-8", "surrogateescape")


class _Files(ProcFiles):
    def __init__(self, text: bytes) -> None:
        self._text = text

    def read(self, name: str) -> bytes:
        return self._text


def number_seeds() -> Sequence[bytes]:
    groups = (*NEW_CPU.values(), *NEW_MEMORY.values(), *OLD_CPU.values(), *OLD_MEMORY.values())
    pressures = (
        b"some avg10=1.5 avg60=0 avg300=0 total=9\nfull avg10=0 total=18446744073709551615\n"
    )
    texts = (STAT, STATUS, PROCESSORS, pressures, b"393970 594805 6\n")
    return *texts, *(text.encode() for text in groups)


def ask_numbers(data: bytes) -> None:
    numbers = [
        *keyed(data).values(),
        *pressure(data).values(),
        *(quota(data) or ()),
        *(processor_ticks(data) or ()),
        *(read(data) for read in (number, run_delay_ns, major_faults, start_ticks)),
    ]
    assert all(value is None or 0 <= value < _MOST for value in numbers)
    for is_unified in (False, True):
        group = _Group("/", data.decode("utf-8", "surrogateescape"), is_unified)
        assert cpu_group(group).name == memory_group(group).name == "/"


def group_seeds() -> Sequence[bytes]:
    return [MOUNTINFO + b"\0" + text for text in (*CGROUPS, b"0::/../a/b\n")]


def ask_groups(data: bytes) -> None:
    table, _, paths = data.partition(b"\0")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "inside").mkdir()
        found = ControlGroups(mounts(table, folder)).of(_Files(paths), "cpu")
    for group in found:
        assert group.folder.startswith(folder)
    for mount in mounts(table):
        for _, path in group_paths(paths):
            below = mount.group(path)
            assert below is None or ".." not in below.split("/")


KERNEL_FILES: Final = (
    Parser(
        "kernel-numbers",
        ("ebpfprof.process.kernel_numbers", "ebpfprof.observing.groups"),
        ask_numbers,
        number_seeds,
    ),
    Parser("control-groups", ("ebpfprof.process.control_groups",), ask_groups, group_seeds),
)
