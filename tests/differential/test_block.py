"""The block profile from outside against the one that Go writes itself, in the same run."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.builds import BUILDS, NEWEST, VERSIONS, builds, in_full, versions
from tests.differential.stacks import Value, by_stack, delay_differences, differences
from tests.recorder import event_count, only_profile, recording
from tests.targets_run import Command, Target
from tests.toolchains import toolchain, toolchains

BLOCKOPS = Path(__file__).parent.parent / "targets" / "blockops"


# A thread that the kernel takes off the processor between Go's clock and ours makes the delays
# of a stack differ by whole time slices. That is chance, and hits another stack each time.
# Stacks and counts must agree in every run.
ATTEMPTS = 5


def compare(
    program: Command, folder: Path, *arguments: str, rate_ns: int = 1
) -> tuple[Profile, dict[str, int]]:
    """Record until the delay of each stack has agreed once; return our profile and the plan."""
    wrong: dict[str, str] | None = None
    for attempt in range(ATTEMPTS):
        attempt_folder = folder / str(attempt)
        attempt_folder.mkdir()
        go, ours, planned = record(program, attempt_folder, *arguments, rate_ns=rate_ns)
        assert lost_events(ours) == 0
        assert differences(of_the_program(go), of_the_program(ours)) == []
        wrong_now = delay_differences(go, ours)
        if wrong is None:
            wrong = wrong_now
        wrong = {stack: wrong_now[stack] for stack in wrong if stack in wrong_now}
        if not wrong:
            return ours, planned
    raise AssertionError(f"delays differ in {ATTEMPTS} runs of {ATTEMPTS}: {wrong}")


def of_the_program(profile: Profile) -> Profile:
    """Without goroutines of the runtime itself: they may have waited since before we came."""
    kept = [
        sample
        for sample in profile.samples
        if not all(f.function.startswith("runtime.") for at in sample.locations for f in at.frames)
    ]
    return replace(profile, samples=tuple(kept))


def record(
    program: Command, folder: Path, *arguments: str, rate_ns: int = 1
) -> tuple[Profile, Profile, dict[str, int]]:
    """Run blockops under both profilers: Go's profile, ours, and the planned counts."""
    own = folder / "go.prof"
    with Target.start(program, "-blockrate=1", f"-profile={own}", *arguments) as target:
        with recording(target.pid, folder, "--block-rate", str(rate_ns)) as recorder:
            target.ask("go", "done")
            planned = json.loads(target.expect("{"))
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        target.ask("write", "written")
    return pprof.decode(own.read_bytes(), kind="block"), only_profile(folder), planned


def test_versions_are_those_of_the_toolchains() -> None:
    assert set(VERSIONS) == set(toolchains())


# Those that differ most, also in the gate.
IN_GATE = ((VERSIONS[0], "plain"), (NEWEST, "plain"), (NEWEST, "pgopark"))


@pytest.mark.target("stripped, `-trimpath`, `-N -l`, PIE, cgo, profile-guided", "everything")
@pytest.mark.parametrize(
    ("version", "mode"), [*IN_GATE, *in_full(*(build for build in BUILDS if build not in IN_GATE))]
)
def test_every_operation_is_counted_as_by_go(version: str, mode: str, tmp_path: Path) -> None:
    program = toolchain(version).build(BLOCKOPS, mode)
    ours, planned = compare(program, tmp_path)

    assert set(planned) > {"chanSend", "selectEither", "rwWriterBehindReader"}
    for operation, count in planned.items():
        assert events_below(ours, operation) == count, operation


@pytest.mark.full
@pytest.mark.parametrize(
    ("version", "mode"),
    builds(
        ("1.19", "cgo"), ("1.22", "plain"), *((NEWEST, mode) for mode in ("cgo", "pgo", "pgopark"))
    ),
)
def test_stacks_read_at_the_wake_equal_gos(version: str, mode: str, tmp_path: Path) -> None:
    """At a rate of 2 ns sampling keeps every wait, but reads its stack at the wake."""
    program = toolchain(version).build(BLOCKOPS, mode)
    compare(program, tmp_path, "-stress=5000", rate_ns=2)


@pytest.mark.parametrize("version", versions())
def test_contended_operations_are_counted_as_by_go(version: str, tmp_path: Path) -> None:
    program = toolchain(version).build(BLOCKOPS)
    ours, _ = compare(program, tmp_path, "-only=^$", "-stress=20000")

    assert event_count(ours) > 1000


@pytest.mark.parametrize("version", versions())
def test_no_wait_is_lost_uncounted_while_stacks_move(version: str, tmp_path: Path) -> None:
    program = toolchain(version).build(BLOCKOPS)
    chosen = ("-only=movedStack|grownStack", "-stress=50000")
    go, ours, _ = record(program, tmp_path, "-collect", *chosen)

    theirs, mine = by_stack(go), by_stack(ours)
    assert set(mine) <= set(theirs)
    missing = {stack: theirs[stack].count - mine.get(stack, Value(0, 0)).count for stack in theirs}
    assert min(missing.values()) >= 0
    assert sum(missing.values()) <= lost_events(ours) < event_count(ours) / 1000


def lost_events(profile: Profile) -> int:
    found = (re.match(r"incomplete: (\d+) ", comment) for comment in profile.comments)
    return sum(int(match[1]) for match in found if match)


def events_below(profile: Profile, operation: str) -> int:
    """Events with a frame of the function main.OPERATION, or of a closure or instance of it."""
    counts: Counter[bool] = Counter()
    for sample in profile.samples:
        names = [frame.function for location in sample.locations for frame in location.frames]
        counts[any(is_function(name, operation) for name in names)] += sample.values[0]
    return counts[True]


def is_function(name: str, operation: str) -> bool:
    return re.match(rf"main\.(\(\*?\w+\)\.)?{operation}\b", name) is not None
