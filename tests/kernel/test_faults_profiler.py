"""Faults of the profiler: it is killed at any moment, or runs beside others."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.bench import bpftrace
from tests.differential.stacks import by_stack
from tests.kernel.kernel_state import (
    BpfObject,
    await_gone,
    await_no_probes,
    bpf_objects,
    children,
    has_probes,
    probed,
)
from tests.kernel.programs import program
from tests.kernel.test_faults_target import memory_cgroup
from tests.kernel.unharmed import ALL_PROFILES, check, checker, whole_profiles
from tests.recorder import COMMAND, Recorder, end, only_profile, recording, run
from tests.targets_run import Target

KILLS = 2
SEED = 6


@pytest.mark.alone
@pytest.mark.full
def test_all_profiles_of_a_busy_target_fit_into_128_mib(tmp_path: Path) -> None:
    """Also with 20,000 stacks; without the compiler, which only the first recording needs."""
    out = tmp_path / "out"
    out.mkdir()
    details = ("--profile", "default", "--max-overhead", "1", "--by-lock", "--open")
    with (
        memory_cgroup(tmp_path / "groups") as group,
        Target.start(program("manystacks")) as target,
    ):
        arguments = ("--pid", str(target.pid), *details)
        assert run(*arguments, "-d", "0.1", folder=tmp_path).code == 0
        target.ask("loop 20000", "done")
        command = (*group.entering(128 << 20), *COMMAND)
        finished = run(*arguments, "-d", "3", folder=out, command=command)
        assert (finished.code, group.kills()) == (0, 0), finished.stderr
        assert len(list(out.iterdir())) == 4
        target.kill()


def test_a_profiler_killed_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    """The moments are random, within the time that a whole run takes on this machine."""
    moments = random.Random(SEED)
    with checker() as target:
        arguments = ("--pid", str(target.pid), "--duration", "0.2", *ALL_PROFILES)
        whole = tmp_path / "whole"
        whole.mkdir()
        began_s = time.monotonic()
        finished = run(*arguments, folder=whole)
        length_s = time.monotonic() - began_s
        assert finished.code == 0, finished.stderr
        assert len(whole_profiles(whole)) == 4

        for number in range(KILLS):
            folder = tmp_path / str(number)
            folder.mkdir()
            delay_s = moments.uniform(0, length_s)
            objects = killed_after(delay_s, arguments, folder)
            await_no_probes(target.pid)
            await_gone(objects)
            whole_profiles(folder)
        check(target)


def killed_after(delay_s: float, arguments: tuple[str, ...], folder: Path) -> set[BpfObject]:
    """Run the command and kill it; what it had in the kernel at that moment."""
    recorder = Recorder(arguments, folder)
    try:
        time.sleep(delay_s)
        os.kill(recorder.pid, signal.SIGSTOP)  # it may have ended, but was not waited for
        changed = os.waitid(os.P_PID, recorder.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert changed is not None
        is_stopped = changed.si_code == os.CLD_STOPPED
        objects = bpf_objects(recorder.pid) if is_stopped else set()
        recorder.kill()
        finished = recorder.finish()
    finally:
        recorder.close()
    assert finished.code == (-signal.SIGKILL if is_stopped else 0), finished.stderr
    assert "Traceback" not in finished.stderr
    return objects


def test_a_started_program_survives_a_killed_run(tmp_path: Path) -> None:
    words = (*COMMAND[1:-1], "run", "--profile", "block,mutex,cpu", "--", str(program("checker")))
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with in_folder(tmp_path), Target.start(Path(sys.executable), *words, env=env) as profiler:
        (pid,) = children(profiler.pid)
        check(profiler)  # its standard streams are the program's
        assert has_probes(pid)
        objects = bpf_objects(profiler.pid)
        os.kill(profiler.pid, signal.SIGKILL)
        assert profiler.wait() == -signal.SIGKILL
        await_no_probes(pid)
        await_gone(objects)
        check(profiler)
        profiler.kill()  # and its input is closed, so that the program ends
    assert os.listdir(tmp_path) == []


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def test_many_profilers_of_a_target_each_see_all_events(tmp_path: Path) -> None:
    """Four of ours, one killed, one ended while the others go on, and bpftrace beside them."""
    nopprof = program("nopprof")
    folders = [tmp_path / str(number) for number in range(4)]
    with Target.start(nopprof) as target, ExitStack() as held:
        recorders = []
        for folder in folders:
            folder.mkdir()
            recorders.append(held.enter_context(recording(target.pid, folder)))
        killed, early, *others = recorders
        with bpftrace.attached(target.pid, nopprof):
            killed.kill()
            assert killed.finish().code == -signal.SIGKILL
            target.ask("go", "done")
            early.interrupt()
            assert early.finish().code == 0
        for recorder in others:
            assert probed(target.pid)
            recorder.interrupt()
            finished = recorder.finish()
            assert finished.code == 0, finished.stderr
        # bpftrace's had to be single-stepped, of which a page stays.
        assert not probed(target.pid)
    assert os.listdir(folders[0]) == []
    first, *rest = [by_stack(only_profile(folder)) for folder in folders[1:]]
    counts = {stack: value.count for stack, value in first.items()}
    assert sum(counts.values()) > 300
    for seen in rest:
        assert {stack: value.count for stack, value in seen.items()} == counts


@pytest.mark.alone
@pytest.mark.full
def test_three_profilers_of_all_kinds_leave_the_target_right(tmp_path: Path) -> None:
    with checker("procs") as target, ExitStack() as held:
        for number in range(3):
            folder = tmp_path / str(number)
            folder.mkdir()
            recorder = held.enter_context(recording(target.pid, folder, *ALL_PROFILES))
            held.callback(end, recorder)
        check(target)
    for number in range(3):
        assert len(whole_profiles(tmp_path / str(number))) == 4
