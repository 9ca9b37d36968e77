"""`ebpfprof run`: a program that replaces itself is followed to the Go program."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from tests.builds import in_full
from tests.kernel.kernel_state import children
from tests.kernel.programs import program
from tests.kernel.run_command import BLOCK, COMMAND, WAITS_OF_INIT, has_waits, running
from tests.kernel.tampered import command as tampered
from tests.recorder import only_profile, run


@pytest.mark.parametrize("options", [*in_full((BLOCK,)), ("--profile", "default")])
def test_run_follows_execs_to_the_go_program(options: tuple[str, ...], tmp_path: Path) -> None:
    path = program("brief")
    words = ("env", "A=1", "sh", "-c", f"exec {shlex.quote(str(path))} exit 4")
    finished = run(*options, "--", *words, folder=tmp_path, command=COMMAND)
    assert finished.code == 4, finished.stderr
    assert "(env) called exec: " in finished.stderr
    assert "called exec: brief is profiled instead" in finished.stderr
    (written,) = tmp_path.glob("brief-*.block.pb.gz")
    assert has_waits(pprof.decode(written.read_bytes()), "main.receiveInInit", WAITS_OF_INIT)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("brief-")]


@pytest.mark.full
def test_run_follows_an_unnoticed_exec(tmp_path: Path) -> None:
    """It is stopped at its exec, before ebpfprof notices the end of the recorded program."""
    words = ("sh", "-c", f"exec {shlex.quote(str(program('brief')))} exit 4")
    command = tampered("notices no replacement", "run")
    finished = run("--profile", "default", "--", *words, folder=tmp_path, command=command)
    assert finished.code == 4, finished.stderr
    assert "called exec: brief is profiled instead" in finished.stderr
    (written,) = tmp_path.glob("brief-*.block.pb.gz")
    assert has_waits(pprof.decode(written.read_bytes()), "main.receiveInInit", WAITS_OF_INIT)


@pytest.mark.full
def test_a_program_that_execs_at_the_end_of_the_recording_continues(tmp_path: Path) -> None:
    words = ("--profile", "default", "--duration", "0.2", "--", *once_left())
    finished = run(*words, folder=tmp_path, command=tampered("leaves late", "run"))
    assert finished.code == 4, finished.stderr
    assert "is profiled instead" not in finished.stderr
    (written,) = tmp_path.glob("*.pb.gz")
    assert not written.name.startswith("brief-")


def test_a_program_that_execs_after_a_failed_recording_continues(
    tmp_path: Path,
) -> None:
    command = tampered("fails while recording", "run")
    finished = run("--profile", "default", "--", *once_left(), folder=tmp_path, command=command)
    assert finished.code == 13, finished.stderr
    assert "made up" in finished.stderr
    assert "The program ended with status 4." in finished.stderr


def once_left() -> tuple[str, ...]:
    """A program that replaces itself by brief as soon as there is a file `left`."""
    wait = "until [ -e left ]; do :; done"
    return "sh", "-c", f"{wait}; exec {shlex.quote(str(program('brief')))} exit 4"


def test_run_follows_a_script_to_the_go_program(tmp_path: Path) -> None:
    script = tmp_path / "start"
    script.write_text(f'#!/bin/sh\nexec {program("brief")} "$@"\n')
    script.chmod(0o755)
    finished = run(*BLOCK, "--", "./start", "exit", "4", folder=tmp_path, command=COMMAND)
    assert finished.code == 4, finished.stderr
    assert has_waits(only_profile(tmp_path), "main.receiveInInit", WAITS_OF_INIT)


def test_run_does_not_follow_the_exec_of_a_go_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(str(program("brief")), "exec", str(program("sleeper"))) as target:
        (pid,) = children(target.pid)
        while f"\n    ebpfprof attach --pid {pid}" not in target.errors:
            assert target.returncode is None
        target.close_input()
        assert target.wait() == 0
        assert "replaced itself by another program (exec)" in target.errors
    assert has_waits(only_profile(tmp_path), "main.receiveInInit", WAITS_OF_INIT)


def test_a_program_that_is_not_go_has_a_cpu_profile(tmp_path: Path) -> None:
    words = ("awk", "BEGIN { while (i < 3e7) i++; exit 6 }")
    finished = run("--profile", "default", "--", *words, folder=tmp_path, command=COMMAND)
    assert finished.code == 6
    assert "is not a Go program: only its CPU profile is recorded" in finished.stderr
    assert only_profile(tmp_path).samples


def test_a_program_that_is_not_go_has_no_block_profile(tmp_path: Path) -> None:
    finished = run(*BLOCK, "--", "sh", "-c", "echo said; exit 6", folder=tmp_path, command=COMMAND)
    assert finished.code == 5
    assert finished.stdout == b"said\n"
    assert "The program ended with status 6." in finished.stderr
    assert "is not a Go program, and did not exec one" in finished.stderr


def test_a_followed_program_can_be_stopped_and_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running("cat", ready=None) as target:
        assert target.ask("one", "one") == "one"
        (pid,) = children(target.pid)
        os.kill(pid, signal.SIGSTOP)
        while "\nState:\tT" not in (status := Path(f"/proc/{pid}/status").read_text()) and (
            "\nState:\tt" not in status
        ):
            assert target.returncode is None
        os.kill(pid, signal.SIGCONT)
        assert target.ask("two", "two") == "two"
        os.kill(target.pid, signal.SIGTERM)
        assert target.wait() == 5  # it was not killed by it, but is no Go program
        assert f"ended with status {128 + signal.SIGTERM}" in target.errors
