"""Programs that can have a CPU profile only: of unknown or old versions of Go, or not Go's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode, UnsupportedGo
from tests.go_target import inspect
from tests.kernel.kernel_state import children
from tests.kernel.programs import program, with_version
from tests.kernel.refusal import refused
from tests.kernel.test_bad_target import cat, running_as
from tests.kernel.verbs import verb
from tests.recorder import only_profile, run
from tests.targets_run import Target


def test_an_unknown_version_has_a_cpu_profile(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "out").mkdir()
    copy = with_version(program("workloads"), tmp_path / "bin", "go1.99.1")
    with Target.start(copy) as target:
        target.say("go garbage 100000000")
        finished = run(
            *("--pid", str(target.pid), "--profile", "cpu", "--duration", "0.4"),
            folder=tmp_path / "out",
        )
        target.kill()
    assert finished.code == 0, finished.stderr
    output = f"ebpfprof: process {target.pid} (workloads): the program was built with go1.99.1, "
    assert finished.stderr.count(output) == 1
    assert "So only its CPU profile is recorded" in finished.stderr
    profile = only_profile(tmp_path / "out")
    functions = {frame.function for sample in profile.samples for frame in sample.frames}
    assert "main.grow" in functions
    assert any("go1.99.1" in comment for comment in profile.comments)


@pytest.mark.full
def test_the_refusal_of_other_profiles_says_what_goes(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "out").mkdir()
    copy = with_version(program("sleeper"), tmp_path / "bin", "go1.99.1")
    with Target.start(copy) as target:
        for kinds in ("default", "block,cpu"):
            output = refused(
                ExitCode.UNSUPPORTED_GO,
                *("--pid", str(target.pid), "--profile", kinds),
                folder=tmp_path / "out",
            )
            assert "go1.99.1" in output
            assert "--allow-unknown-go" in output
            assert "--profile cpu" in output


def test_a_version_that_is_too_old_is_named_and_no_option_is_recommended(tmp_path: Path) -> None:
    old = with_version(program("sleeper"), tmp_path, "go1.16.15")
    with running_as(old) as process:
        for allow in (False, True):
            with pytest.raises(UnsupportedGo, match=r"go1\.16\.15") as raised:
                inspect(process, allow_unknown_go=allow)
            assert "--allow-unknown-go" not in str(raised.value)
            assert "Go 1.17 or newer" in str(raised.value)
            assert "--profile cpu" in str(raised.value)


def test_tables_that_no_known_version_has_are_not_damage_where_the_version_is_unknown(
    tmp_path: Path,
) -> None:
    # A Go 1.19 program that names a later version: its tables contradict those.
    copy = with_version(program("sleeper", "1.19"), tmp_path, "go1.99.1")
    with running_as(copy) as process, pytest.raises(UnsupportedGo, match=r"go1\.99\.1") as raised:
        inspect(process, allow_unknown_go=True)
    assert "--allow-unknown-go" not in str(raised.value)
    assert "damaged" not in str(raised.value)


@pytest.mark.full
def test_list_says_what_an_unknown_version_can_have(tmp_path: Path) -> None:
    copy = with_version(program("sleeper"), tmp_path, "go1.99.1")
    with Target.start(copy) as target:
        output = verb("list", "--name", "sleeper")
    (line,) = [
        splitline
        for splitline in output.stdout.splitlines()
        if splitline.split()[:1] == [str(target.pid)]
    ]
    assert line.split()[-2] == "cpu"
    assert f"{target.pid}: the program was built with go1.99.1" in output.stdout
    assert "--allow-unknown-go" in output.stdout


@pytest.mark.full
def test_an_idle_program_that_is_not_go_is_reported_to_have_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "out").mkdir()
    with cat(tmp_path / "bin" / "python3") as pid:
        finished = run(
            *("--pid", str(pid), "--profile", "default", "--duration", "0.5"),
            folder=tmp_path / "out",
        )
        live = verb("top", "--pid", str(pid), "--once", "--interval", "0.5")
    output = f"process {pid} (python3) is not a Go program: only its CPU profile is recorded."
    *_, results = finished.stderr.partition(f"recording cpu profile of process {pid}")
    assert f"ebpfprof: {output}" in results  # beside the empty table, too
    assert output in " ".join(live.stdout.split())


def test_go_children_of_a_program_that_is_not_go_are_named(tmp_path: Path) -> None:
    script = '"$0"; true'  # not exec: the shell stays
    with Target.start(Path("/bin/sh"), "-c", script, str(program("sleeper"))) as shell:
        (child,) = children(shell.pid)
        finished = run(
            *("--pid", str(shell.pid), "--profile", "cpu", "--duration", "0.5"), folder=tmp_path
        )
    assert f"Perhaps you mean one of its children: {child} (sleeper)." in finished.stderr
