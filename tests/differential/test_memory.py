"""What memory consists of, from outside, beside the runtime.MemStats of a still program.

The command to tell them allocates a little: so ours is read between two of Go's, and lies between
them. With GOGC=off Go does not give memory back to the kernel in the background.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import pytest

from ebpfprof.goruntime.heap.memory_reader import read_memory, read_statistics
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.memory import MemoryParts, MemoryStatistics
from symbolizer import ElfFile, GoBinary
from tests.builds import NEWEST, builds, versions
from tests.kernel.programs import program
from tests.targets_run import Target

KEPT = 3000
# Before Go tells, it empties the processors' caches of stacks, which are of 32 KiB.
STACK_CACHE = 128 << 10
OF_STACKS = ("heap_mapped", "idle", "stacks_in_use", "stacks_mapped")
CACHED = 1 << 20  # bytes
FEW = 200  # what Go's command to tell its statistics allocates, and its scanner of commands


@contextmanager
def running(version: str = NEWEST, mode: str = "plain", **env: str) -> Iterator[Target]:
    with Target.start(program("memory", version, mode), env=env) as target:
        yield target


def gos(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(target.ask("stats", "{"))
    return found


def read(pid: int) -> MemoryParts:
    with Process(pid) as process, ElfFile.open(process.exe_fd, process.allowance) as elf:
        return read_memory(process, GoBinary.open(elf), process.load_bias(elf.entry))


def statistics(pid: int) -> MemoryStatistics:
    with Process(pid) as process, ElfFile.open(process.exe_fd, process.allowance) as elf:
        return read_statistics(process, GoBinary.open(elf), process.load_bias(elf.entry))


def numbers(found: MemoryStatistics) -> dict[str, Any]:
    whole = {**asdict(found), **asdict(found.collector)}
    return {**whole, "allocated": found.allocated, "objects": found.objects}


@pytest.mark.parametrize(("version", "mode"), builds())
def test_statistics_equal_gos(version: str, mode: str) -> None:
    with running(version, mode, GOGC="off") as target:
        target.ask(f"keep {KEPT}", "done")
        target.ask("gc", "done")
        target.ask("drop", "done")
        target.ask("gc", "done")
        before = gos(target)
        found = read(target.pid).statistics
        after = gos(target)
    ours = numbers(found)
    assert ours.pop("goal") is None
    assert min(before.pop("goal"), after.pop("goal")) > 1 << 60
    assert found.is_settled
    for name, value in before.items():
        if name != "by_size":
            most = STACK_CACHE if name in OF_STACKS else 0
            low, high = sorted((value, after[name]))
            assert low - most <= ours[name] <= high + most, name
    assert 0 <= after["mallocs"] - before["mallocs"] < FEW
    assert before["cycles"] == after["cycles"] >= 2
    # Go's own table leaves out the largest sizes (runtime.MemStats.BySize).
    for (size, mallocs, frees), (_, later, freed), each in zip(
        before["by_size"], after["by_size"], (found.classes[0], *found.classes[1:]), strict=False
    ):
        if size:
            assert each.size == size
            assert mallocs <= each.mallocs <= later
            assert frees <= each.frees <= freed


@pytest.mark.parametrize(
    ("version", "env"),
    [
        ("1.19", {"GOGC": "off", "GOMEMLIMIT": "100MiB"}),
        (NEWEST, {"GOGC": "off", "GOMEMLIMIT": "100MiB"}),
        (NEWEST, {"GOGC": "200"}),
        pytest.param("1.17", {"GOGC": "200"}, marks=pytest.mark.full),
        pytest.param("1.18", {"GOGC": "200"}, marks=pytest.mark.full),
    ],
)
def test_the_next_goal_is_gos(version: str, env: dict[str, str]) -> None:
    with running(version, **env) as target:
        target.ask(f"keep {KEPT}", "done")
        target.ask("gc", "done")
        before = gos(target)
        found = statistics(target.pid).collector
        after = gos(target)
    goals = sorted((before["goal"], after["goal"]))
    assert found.goal is not None
    assert goals[0] <= found.goal <= goals[1]
    assert goals[1] - goals[0] < 1 << 20
    assert found.limit == (100 << 20 if "GOMEMLIMIT" in env else None)
    assert found.percent == (-1 if env["GOGC"] == "off" else 200)


@pytest.mark.parametrize("version", versions())
def test_size_classes_and_types_have_what_the_program_kept(version: str) -> None:
    with running(version) as target:
        target.ask(f"keep {KEPT}", "done")
        target.ask("gc", "done")
        found = read(target.pid)
    by_size = {size_class.size: size_class for size_class in found.statistics.classes}
    # A record has 1 + 2 * 120 words, and a header from Go 1.22 on; both fit into 2,048 bytes.
    assert KEPT <= by_size[2048].objects <= KEPT + FEW
    assert KEPT <= by_size[96].objects <= KEPT + FEW
    assert by_size[0].objects >= KEPT // 10
    for each in found.statistics.classes:
        assert each.held >= each.used
        assert 0 <= each.pointerless <= each.held
        assert (each.spans > 0) == (each.held > 0)
    total = sum(each.held for each in found.statistics.classes)
    assert total == found.statistics.heap_in_use
    if found.types is None:
        assert int(version.removeprefix("1.")) < 22
        assert {each.type for each in found.large} == {""}
        return
    objects = {each.name: each.objects for each in found.types}
    used = {each.name: each.used for each in found.types}
    assert objects["main.record"] == KEPT
    assert used["main.record"] == 2048 * KEPT
    assert objects["main.giant"] == KEPT // 10
    assert found.large[0].type == "main.giant"
    assert found.typed == sum(used.values()) > 0.9 * found.statistics.allocated * 0.9
    assert found.typed_share == 1


def test_a_program_that_allocates_meanwhile_is_read() -> None:
    with running() as target:
        target.ask("churn", "done")
        found = [statistics(target.pid) for _ in range(30)]
        after = gos(target)
    totals = [each.total_allocated for each in found]
    # What the cache of a processor gives back while it is read may be missing, or be there twice.
    assert all(later > earlier - CACHED for earlier, later in pairwise(totals))
    assert totals[0] < totals[-1] <= after["total_allocated"] + CACHED
    assert len({each.collector.cycles for each in found}) > 1
    assert all(0 < each.allocated <= each.heap_mapped for each in found if each.is_settled)
    assert sum(each.is_settled for each in found) > 20
