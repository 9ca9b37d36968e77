"""The targets do what the other tests build on, as Go itself sees it, without our profiler."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from symbolizer import ElfFile, GoBinary
from tests.bench.workloads import WORKLOADS, Running, Workload
from tests.builds import builds, versions
from tests.targets_run import Target
from tests.toolchains import MINORS, toolchain

pytestmark = pytest.mark.machine

TARGETS = Path(__file__).parents[2] / "targets"
# What the runtime itself does while the operations run: the first collection starts workers,
# every collection of Go 1.23 and 1.24 wakes the goroutine that cleans up after package unique.
RUNTIME_EVENTS = re.compile(r"runtime\.(gcBgMarkStartWorkers|unique_runtime_\w+(\.func\d)?)")


def own_profile(minor: str, mode: str, folder: Path, *flags: str) -> tuple[dict[str, int], Profile]:
    """Run blockops under Go's block profiler at rate 1: planned events, and Go's profile."""
    program = toolchain(minor).build(TARGETS / "blockops", mode)
    written = folder / "block.pb.gz"
    with Target.start(program, "-blockrate=1", f"-profile={written}", *flags) as target:
        target.ask("go", "done")
        planned: dict[str, int] = json.loads(target.expect("{"))
        target.ask("write", "written")
    return planned, pprof.decode(written.read_bytes(), kind="block")


def events(profile: Profile, function: str) -> int:
    """Events with a frame whose function matches the expression from its begin on."""
    expression = re.compile(function)
    return sum(
        sample.values[0]
        for sample in profile.samples
        if any(expression.match(f.function) for at in sample.locations for f in at.frames)
    )


def operation(name: str) -> str:
    return rf"main\.(\(\*?\w+\)\.)?{name}\b"


@pytest.mark.parametrize(
    ("minor", "mode"),
    builds(*((minor, "plain") for minor in MINORS), ("1.19", "cgo"), ("1.27", "cgo")),
)
def test_every_operation_blocks_as_often_as_planned(minor: str, mode: str, tmp_path: Path) -> None:
    planned, profile = own_profile(minor, mode, tmp_path)

    seen = {name: events(profile, operation(name)) for name in planned}
    assert seen == planned
    total = sum(sample.values[0] for sample in profile.samples)
    assert total == sum(planned.values()) + events(profile, RUNTIME_EVENTS.pattern)


def test_operations_can_be_selected(tmp_path: Path) -> None:
    planned, profile = own_profile("1.27", "plain", tmp_path, "-only=^(mutexLock|sleeping)$")
    assert planned == {"mutexLock": 39, "sleeping": 0}
    assert events(profile, "main") - events(profile, RUNTIME_EVENTS.pattern) == 39


STRESS_RUNS = 5


@pytest.mark.parametrize("minor", versions("1.19", "1.22", "1.27"))
def test_every_kind_of_stress_blocks(minor: str, tmp_path: Path) -> None:
    """Once at least in a few runs: with one processor to itself a kind may get by without."""
    missing = {"Mutex", "RWMutex", "Semaphore", "Cond", "WaitGroup", "File"}
    missing |= {"Channels", "Select", "Pipe", "Timers"}
    for run in range(STRESS_RUNS):
        folder = tmp_path / str(run)
        folder.mkdir()
        planned, profile = own_profile(minor, "plain", folder, "-only=^$", "-stress=5000")
        assert planned == {}
        blocked = {
            kind for kind in missing if events(profile, rf"main\.(runStress\.)?stress{kind}\b")
        }
        missing -= blocked
        if not missing:
            break
    assert missing == set()


def test_without_a_block_rate_go_records_no_wait(tmp_path: Path) -> None:
    program = toolchain("1.27").build(TARGETS / "blockops")
    written = tmp_path / "block.pb.gz"
    with Target.start(program, "-only=^chanSend$", f"-profile={written}") as target:
        target.ask("go", "done")
        target.ask("write", "written")
    assert pprof.decode(written.read_bytes(), kind="block").samples == ()


@pytest.mark.parametrize("minor", versions("1.19", "1.27"))
def test_checker_continues_without_an_error(minor: str) -> None:
    with Target.start(toolchain(minor).build(TARGETS / "checker")) as target:
        rounds = [int(target.ask("check", "").removeprefix("ok ")) for _ in range(3)]
    # Every answer comes after two more rounds of each of the seven jobs.
    assert rounds[0] >= 14
    assert rounds[1] >= rounds[0] + 14
    assert rounds[2] >= rounds[1] + 14


def test_pingpong_answers_every_line() -> None:
    program = toolchain("1.27").build(TARGETS / "pingpong")
    with Target.start(program, "-sends=2000", "-blockrate=1") as target:
        costs = [float(target.ask("round", "ns ").split()[1]) for _ in range(3)]
    assert min(costs) > 0


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_workload_runs_the_requested_rounds(workload: Workload, tmp_path: Path) -> None:
    written = tmp_path / "block.pb.gz"
    with ExitStack() as held:
        running = Running(workload, held)
        running.target.ask("own block=1", "own")
        took = running.round(500)
        running.target.ask("own", "own")
        running.target.ask(f"write {written}", "written")
        events = [count(written)]
        running.round(500)
        running.target.ask(f"write {written}", "written")
        events.append(count(written))
    assert took.wall_ns > 0
    # What is switched off records nothing any more.
    assert 0 < events[0] == events[1]


@pytest.mark.parametrize("frames", [5, 10, 100])
@pytest.mark.parametrize("stacks", [1, 50])
def test_ping_pong_has_the_requested_stacks(frames: int, stacks: int, tmp_path: Path) -> None:
    written = tmp_path / "block.pb.gz"
    with ExitStack() as held:
        running = Running(WORKLOADS[0], held)
        running.target.ask("own block=1", "own")
        running.round(50_000, procs=1, goroutines=20, frames=frames, stacks=stacks)
        running.target.ask(f"write {written}", "written")
    profile = pprof.decode(written.read_bytes(), kind="block")
    producing = [
        [frame.function for at in sample.locations for frame in at.frames]
        for sample in profile.samples
        if any(f.function == "main.produce" for at in sample.locations for f in at.frames)
    ]
    assert len(producing) == stacks
    if stacks == 1:
        assert len(producing[0]) == frames


def count(profile: Path) -> int:
    """All events of a block profile."""
    samples = pprof.decode(profile.read_bytes(), kind="block").samples
    return sum(sample.values[0] for sample in samples)


@pytest.mark.parametrize("name", ["nopprof", "demo"])
def test_targets_without_pprof_have_no_profiler_code(name: str) -> None:
    with ElfFile.open(toolchain("1.27").build(TARGETS / name)) as elf:
        names = {function.name for function in GoBinary.open(elf).functions()}
    assert "runtime.chanrecv" in names
    assert "runtime.SetBlockProfileRate" not in names
    assert not [each for each in names if each.startswith(("runtime/pprof.", "net/http/pprof."))]


@pytest.mark.parametrize(
    "name",
    ["blockops", "mutexops", "checker", "pingpong", "sleeper", "nopprof", "demo"],
)
@pytest.mark.parametrize("line", ["", "go"])
def test_every_target_ends_when_its_input_closes(name: str, line: str) -> None:
    with Target.start(toolchain("1.27").build(TARGETS / name)) as target:
        if line:
            target.say(line)
        target.close(deadline_s=30)
    assert target.returncode == 0
