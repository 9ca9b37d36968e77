"""Memory that only grows is reported by `serve`: from windows, and of a program that leaks."""

from __future__ import annotations

import json
from time import monotonic, sleep
from typing import Any

import pytest

from ebpfprof.continuous.history import Window
from ebpfprof.continuous.process import RecordedProcess
from ebpfprof.profile.model import Location, Profile
from ebpfprof.profilers.registry import kind_named
from ebpfprof.server.growths import Growths
from tests.builds import in_full
from tests.continuous.fakes import PID
from tests.differential.test_heap import EVERY_ALLOCATION, order, running
from tests.kernel.programs import program
from tests.server.serving import DEADLINE_S, Server
from tests.targets_run import Target
from tests.unit.profile.test_heap_growth import KIB, LEAK, OTHER, sample

HEAP = kind_named("heap")


def heap(leaked: int, other: int = 100) -> Profile:
    samples = [sample(LEAK, leaked), sample(OTHER, other)]
    return HEAP.make_profile(samples, (), period=1, time_ns=0, duration_ns=0)


def growths_of(*profiles: Profile) -> list[tuple[tuple[Location, ...], int]]:
    """What is reported of windows of ten seconds with these profiles."""
    process = RecordedProcess(PID, ("heap",))
    growths = Growths()
    for number, profile in enumerate(profiles):
        process.history.windows.append(Window(10.0 * number, 10.0 * number + 10, {"heap": profile}))
    return [(each.key, each.grown) for each in growths.of(process)]


def test_a_stack_that_grows_is_reported() -> None:
    assert growths_of(*(heap(10 * number) for number in range(1, 8))) == [(LEAK, 60 * KIB)]


@pytest.mark.parametrize(
    "leaked", [[10, 20, 30], [10, 10, 10, 20, 20, 20, 20], [70, 60, 50, 40, 30, 20, 10]]
)
def test_too_few_collections_and_what_shrinks_are_not(leaked: list[int]) -> None:
    """Windows without another collection have the same values."""
    assert growths_of(*map(heap, leaked)) == []


def test_growth_of_next_to_nothing_is_not() -> None:
    assert growths_of(*(heap(10 + number, other=100_000) for number in range(8))) == []


def growths(server: Server, target: Target, *commands: str) -> list[dict[str, Any]]:
    """What is reported first, while the target is given these commands in each window."""
    until = monotonic() + DEADLINE_S
    while True:
        assert monotonic() < until
        for command in commands:
            order(target, command)
        sleep(1.05)  # one window at least
        body = server.get(f"/api/targets/{target.pid}/goroutines").body
        if found := [load for load in json.loads(body)["findings"] if load["kind"] == "growth"]:
            return found


def serving(target: Target, *arguments: str) -> Server:
    recorded = ("--profile", "heap", "--continuous", "--window", "1s", *arguments)
    return Server("--pid", str(target.pid), *recorded)


@pytest.mark.full
def test_a_program_that_leaks() -> None:
    with (
        running("1.27", rate=EVERY_ALLOCATION, GOGC="off") as target,
        serving(target) as server,
    ):
        assert server.ready
        first = growths(server, target, "leak 20", "turn", "make 2", "drop", "gc")[0]
    assert first["stack"][0]["function"] == "main.leak"
    assert first["title"].startswith("Perhaps a leak: memory in use by main.leak (main.go:")
    assert first["growth_bytes_per_minute"] > 0
    assert first["error_bytes"] == 0


@pytest.mark.full
@pytest.mark.parametrize("alloc_rate", [*in_full(1), 1024])
def test_a_program_that_leaks_and_keeps_no_memory_profile(alloc_rate: int) -> None:
    """Its allocations are counted at the gates, each or a sample; what is reused does not grow."""
    with (
        Target.start(program("allocations"), env={"GOGC": "off"}) as target,
        serving(target, "--alloc-rate", str(alloc_rate), "--max-overhead", "0") as server,
    ):
        assert server.ready
        found = growths(server, target, "keep 200", "reuse 500", "gc")
    leaks = {each["stack"][0]["function"] for each in found}
    assert "main.keepSmall" in leaks or "main.keepLarge" in leaks
    assert leaks <= {"main.keepSmall", "main.keepMedium", "main.keepLarge"}
    of_small = [each for each in found if each["stack"][0]["function"] != "main.keepLarge"]
    assert all((each["error_bytes"] > 0) is (alloc_rate > 1) for each in of_small)
