"""The block profile from outside against the one that Go writes itself, in the same run."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile import Profile
from tests.differential.stacks import differences
from tests.recorder import only_profile, recording
from tests.targets_run import Target
from tests.toolchains import MODES, toolchain, toolchains

BLOCKOPS = Path(__file__).parent.parent / "targets" / "blockops"

VERSIONS = ("1.19", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27")
# Every build mode on the oldest, the newest and one between; every version at least plain.
BUILDS = [
    (version, mode)
    for version in VERSIONS
    for mode in MODES
    if mode == "plain" or version in ("1.19", "1.22", "1.27")
]
BUILDS.remove(("1.19", "pgo"))  # profile-guided builds came with Go 1.20


def record(program: Path, folder: Path, *arguments: str) -> tuple[Profile, Profile, dict[str, int]]:
    """Run blockops under both profilers: Go's profile, ours, and the planned counts."""
    own = folder / "go.prof"
    with Target.start(program, "-blockrate=1", f"-profile={own}", *arguments) as target:
        with recording(target.pid, folder) as recorder:
            target.ask("go", "done")
            planned = json.loads(target.expect("{"))
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        assert "lost" not in finished.stderr
        target.ask("write", "written")
    return pprof.decode(own.read_bytes(), kind="block"), only_profile(folder), planned


def test_all_versions_are_there() -> None:
    assert set(VERSIONS) == set(toolchains())


@pytest.mark.parametrize(("version", "mode"), BUILDS)
def test_every_operation_as_go_counts_it(version: str, mode: str, tmp_path: Path) -> None:
    program = toolchain(version).build(BLOCKOPS, mode)
    go, ours, planned = record(program, tmp_path)

    assert differences(go, ours) == []
    for operation, count in planned.items():
        assert events_below(ours, operation) == count, operation


@pytest.mark.parametrize("version", VERSIONS)
def test_contended_operations_as_go_counts_them(version: str, tmp_path: Path) -> None:
    program = toolchain(version).build(BLOCKOPS)
    go, ours, _ = record(program, tmp_path, "-only=^$", "-stress=20000")

    assert differences(go, ours) == []
    assert sum(sample.values[0] for sample in ours.samples) > 1000


def events_below(profile: Profile, operation: str) -> int:
    """Events with a frame of the function main.OPERATION, or of a closure or instance of it."""
    counts: Counter[bool] = Counter()
    for sample in profile.samples:
        names = [frame.function for location in sample.locations for frame in location.frames]
        counts[any(is_function(name, operation) for name in names)] += sample.values[0]
    return counts[True]


def is_function(name: str, operation: str) -> bool:
    return re.match(rf"main\.(\(\*?\w+\)\.)?{operation}\b", name) is not None
