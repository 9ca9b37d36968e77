"""A process whose first thread has ended: the kernel calls it a zombie, but it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.process.process import Target as Process
from tests.builds import in_full
from tests.kernel.programs import program
from tests.kernel.refusal import refused
from tests.kernel.verbs import verb
from tests.recorder import event_count, only_profile, run
from tests.targets_run import Target


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target.start(program("firstgone")) as started:
        yield started


@pytest.mark.target("the first thread has ended", "everything")
@pytest.mark.parametrize("overhead", ["0", *in_full("1")])
def test_its_waits_are_recorded(target: Target, overhead: str, tmp_path: Path) -> None:
    """By probes for its threads, of a window and for good."""
    options = ("--profile", "block,mutex", "--max-overhead", overhead, "--duration", "1")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    for path in tmp_path.glob("*.pb.gz"):
        profile = pprof.decode(path.read_bytes())
        assert event_count(profile) > 0
        frames = {f.function for s in profile.samples for at in s.locations for f in at.frames}
        assert "main.contend" in frames


def test_its_goroutines_are_sampled(target: Target, tmp_path: Path) -> None:
    options = ("--profile", "wall", "--duration", "0.5")
    assert run("--pid", str(target.pid), *options, folder=tmp_path).code == ExitCode.OK
    profile = only_profile(tmp_path)
    names = {at.frames[0].function for sample in profile.samples for at in sample.locations}
    assert "main.contend" in names


def test_it_is_listed_and_dumped(target: Target) -> None:
    rows = json.loads(verb("list", "--json", "--name", "firstgone").stdout)["processes"]
    (row,) = (row for row in rows if row["pid"] == target.pid)
    assert row["supported"]
    assert row["executable"] == str(program("firstgone"))
    assert row["command"] == str(program("firstgone"))
    dumped = verb("dump", "--pid", str(target.pid))
    assert dumped.code == ExitCode.OK
    assert "sync.Mutex" in dumped.stdout


def test_it_ends_with_its_last_thread(tmp_path: Path) -> None:
    with Target.start(program("firstgone")) as target, Process(target.pid) as process:
        assert process.ending() is None
        target.kill()
        ending = process.ending()
        assert ending is not None
        assert ending.text == f"process {target.pid} ended"
        pid = os.posix_spawn("/bin/true", ["true"], {})
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            output = refused(ExitCode.UNSUPPORTED_TARGET, "--pid", str(pid), folder=tmp_path)
        finally:
            os.waitpid(pid, 0)
    assert f"Process {pid} has ended and waits for its parent (a zombie)." in output
