"""A program whose code was replaced by an anonymous copy: uprobes are at a file's pages only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.goruntime.remapped_text import is_remapped
from ebpfprof.process.process import Target as Process
from tests.builds import in_full
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.recorder import only_profile, run
from tests.server.serving import Server
from tests.targets_run import Target

SENTENCE = (
    "has replaced its code by a copy in memory (for huge pages?), where the kernel can't probe it."
)
WORKS = "Without probes there are --profile cpu, wall, goroutine and ebpfprof dump."


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target.start(program("remapped", mode="cgo"), "now") as started:
        yield started


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.target(
    "text replaced by a copy, as for huge pages",
    "all that needs no probe: CPU, wall, goroutine, dump",
)
@pytest.mark.parametrize("kinds", [*in_full("block"), "block,mutex,wakers"])
def test_profiles_that_need_probes_are_refused(target: Target, kinds: str, tmp_path: Path) -> None:
    options = ("--profile", kinds, "--duration", "0.5")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.UNSUPPORTED_TARGET, finished.stderr
    output = in_one_line(finished.stderr)
    assert f"Process {target.pid} (remapped) {SENTENCE} {WORKS}" in output
    assert os.listdir(tmp_path) == []


def test_a_trace_is_refused(target: Target, tmp_path: Path) -> None:
    output = verb("trace", "--pid", str(target.pid), "-d", "0.5", folder=tmp_path)
    assert output.code == ExitCode.UNSUPPORTED_TARGET
    assert SENTENCE in in_one_line(output.stderr)


@pytest.mark.full
def test_other_profiles_are_recorded(target: Target, tmp_path: Path) -> None:
    """The CPU profile has the names of the functions in the copy."""
    options = ("--profile", "block,cpu", "--duration", "0.5")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    assert in_one_line(finished.stderr).count(SENTENCE) == 2  # before and after
    profile = only_profile(tmp_path)
    assert SENTENCE in " ".join(profile.comments)
    leaves = {s.locations[0].frames[0].function for s in profile.samples if s.locations[0].frames}
    assert "main.compute" in leaves


@pytest.mark.full
def test_serve_reports_it(target: Target) -> None:
    with Server("--pid", str(target.pid)) as server:
        assert server.ready
        assert in_one_line(server.said).count(SENTENCE) == 1


def test_its_goroutines_are_sampled_and_dumped(target: Target, tmp_path: Path) -> None:
    options = ("--profile", "wall", "--duration", "0.5")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    assert SENTENCE not in in_one_line(finished.stderr)
    (path,) = tmp_path.glob("*.pb.gz")
    profile = pprof.decode(path.read_bytes())
    names = {f.function for s in profile.samples for at in s.locations for f in at.frames}
    assert "main.contend" in names
    dumped = verb("dump", "--pid", str(target.pid))
    assert dumped.code == ExitCode.OK
    assert "main.contend" in dumped.stdout


def test_a_later_replacement_is_noticed() -> None:
    with Target.start(program("remapped", mode="cgo")) as target, Process(target.pid) as process:
        go = inspect(process)
        try:
            assert not is_remapped(go)
            target.ask("remap", "remapped")
            assert is_remapped(go)
        finally:
            go.binary.elf.close()
