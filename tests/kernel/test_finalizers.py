"""Goroutines of the runtime that run finalizers and cleanups: the program's while they do so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.profile.model import Profile
from ebpfprof.server import goroutines
from tests.builds import versions
from tests.go_target import read
from tests.kernel.programs import NEWEST, program
from tests.kernel.verbs import verb
from tests.recorder import only_profile, run
from tests.targets_run import Target

OURS = {"main.finalize", "main.cleanUp"}
RUNNERS = {"runtime.runfinq", "runtime.runFinalizers", "runtime.runCleanups"}


def functions(profile: Profile) -> set[str]:
    return {frame.function for sample in profile.samples for frame in sample.frames}


def dumped(target: Target) -> list[dict[str, Any]]:
    output = verb("dump", "--json", "--pid", str(target.pid), "--apart", "0.05")
    assert output.code == ExitCode.OK, output.stderr
    found: list[dict[str, Any]] = json.loads(output.stdout)["goroutines"]
    return found


def stacks(goroutines: list[dict[str, Any]]) -> set[str]:
    return {frame["function"] for goroutine in goroutines for frame in goroutine["stack"]}


@pytest.mark.parametrize("version", versions())
def test_those_that_run_one_are_shown_as_go_shows_them(version: str, tmp_path: Path) -> None:
    with Target.start(program("finalizers", version)) as target:
        expected = set(json.loads(target.ask("own", "[")))
        assert expected == (OURS if version >= "1.25" else {"main.finalize"})
        assert stacks(dumped(target)) & OURS == expected
        for kind in ("goroutine", "wall"):
            folder = tmp_path / kind
            folder.mkdir()
            pid = str(target.pid)
            done = run("--pid", pid, "--profile", kind, "-d", "0.2", folder=folder)
            assert done.code == ExitCode.OK, done.stderr
            assert functions(only_profile(folder)) & OURS == expected, kind
        target.kill()


@pytest.mark.full
@pytest.mark.parametrize("version", versions())
def test_those_that_wait_for_the_next_are_the_runtimes(version: str) -> None:
    with Target.start(program("finalizers", version)) as target:
        before = len(dumped(target))
        target.ask("end", "ended")
        while len(found := dumped(target)) >= before:
            pass
        assert stacks(found) & (OURS | RUNNERS) == set()
        target.kill()


@pytest.mark.full
def test_one_that_computes_is_running() -> None:
    with Target.start(program("finalizers", NEWEST), env={"GOMAXPROCS": "3"}) as target:
        target.ask("spin", "spins")
        found = [each["state"] for each in dumped(target)]
        text = read(target.pid, goroutines.traceback).decode()
        target.kill()
    assert len(re.findall(r"^goroutine \d+ \[(?:running|runnable|preempted)", text, re.M)) == 2
    # The finalizer and the cleanup; main waits for its input.
    assert sum(state in ("running", "runnable", "preempted") for state in found) == 2
