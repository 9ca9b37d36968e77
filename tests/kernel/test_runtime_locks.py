"""--runtime-locks where the Go version or the options do not support it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.builds import versions
from tests.differential.mutexes import MUTEXOPS, below, written_profiles
from tests.differential.test_runtime_locks import build
from tests.recorder import only_profile, recording, run
from tests.targets_run import Target
from tests.toolchains import toolchain


@pytest.mark.parametrize("version", versions("1.19", "1.24"))
def test_other_waits_are_recorded_of_go_versions_without_a_lock_list(
    version: str, tmp_path: Path
) -> None:
    program = toolchain(version).build(MUTEXOPS)
    with Target.start(program, "-only=^mutexUnlock$") as target:
        options = ("--profile", "mutex", "--runtime-locks")
        with recording(target.pid, tmp_path, *options) as recorder:
            target.ask("go", "done")
            recorder.interrupt()
            finished = recorder.finish()
        target.ask("write", "written")
    profile = only_profile(tmp_path)
    (output,) = [line for line in finished.stderr.splitlines() if "own locks" in line]
    assert finished.code == 0
    assert output.startswith("ebpfprof: the Go runtime's own locks are not recorded in process")
    assert f"go{version}" in output
    assert output.endswith("(Go 1.25 and newer do).")
    assert output.removeprefix("ebpfprof: ").removesuffix(".") in profile.comments
    assert below(profile, "mutexUnlock").count > 0


def test_runtime_locks_need_the_mutex_profile(tmp_path: Path) -> None:
    finished = run("--pid", "1", "--profile", "block", "--runtime-locks", folder=tmp_path)
    assert finished.code == 2
    assert "--runtime-locks" in finished.stderr
    assert "mutex" in finished.stderr


def test_a_comment_says_that_runtime_locks_are_lower_bounds(tmp_path: Path) -> None:
    with Target.start(toolchain("1.27").build(MUTEXOPS), "-only=^mutexUnlock$") as target:
        options = ("--profile", "block,mutex", "--runtime-locks")
        with recording(target.pid, tmp_path, *options) as recorder:
            target.ask("go", "done")
            recorder.interrupt()
            assert recorder.finish().code == 0
        target.ask("write", "written")
    profiles = written_profiles(tmp_path, ("block", "mutex"))
    assert any("lower bounds" in comment for comment in profiles["mutex"].comments)
    assert not any("lower bounds" in comment for comment in profiles["block"].comments)


@pytest.mark.full
def test_each_of_them_is_recorded_beside_one_wait_in_eight() -> None:
    """They are few, and nothing tracks them."""
    options = Options(kinds=("block", "mutex"), runtime_locks=True, one_in_eight=True)
    with Target.start(build("1.27"), "-rounds=25") as target:
        with Session([target.pid], options) as session:
            session.start()
            target.ask("go", "done")
            planned = json.loads(target.expect("{"))["planned"]
            (report,) = session.finish()
        target.kill()
    (profile,) = (each for each in report.profiles if each.kind == "mutex")
    assert planned
    assert {name: below(profile, name).count for name in planned} == planned
