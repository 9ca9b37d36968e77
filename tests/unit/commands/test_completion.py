"""The scripts for completion, run by the shell that they are for."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.commands.verb import VERBS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the command in it, and a file."""
    command = tmp_path / "ebpfprof"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ebpfprof "$@"\n')
    command.chmod(0o755)
    (tmp_path / "some-program").touch()
    return tmp_path


def completed(line: str, folder: Path) -> list[str]:
    """What bash offers at the end of a line, with the script of the command itself."""
    words = line.split(" ")
    script = f"""
        source <(ebpfprof completion bash) || exit
        compopt() {{ printf 'compopt %s %s\\n' "$@"; }}  # is for the line editor
        COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
        $(complete -p ebpfprof | sed 's/.*-F \\([^ ]*\\).*/\\1/') ebpfprof
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [line.strip() for line in done.stdout.split("\n") if line.strip()]


def test_bash_completes_verbs(folder: Path) -> None:
    assert set(completed("ebpfprof ", folder)) == set(VERBS)
    assert completed("ebpfprof atta", folder) == ["attach"]


def test_bash_completes_options_and_their_values(folder: Path) -> None:
    assert completed("ebpfprof attach --dura", folder) == ["--duration"]
    assert completed("ebpfprof attach --format spee", folder) == ["speedscope"]
    assert completed("ebpfprof attach --profile bl", folder) == ["block"]
    assert completed("ebpfprof attach --profile block,", folder) == [
        "block,mutex",
        "block,wakers",
        "block,runqueue",
        "block,cpu",
        "block,wall",
        "block,goroutine",
        "block,heap",
        "block,allocs",
        "block,threads",
        "block,threadcreate",
    ]
    assert completed("ebpfprof completion ", folder) == ["bash", "zsh", "fish"]


def test_bash_completes_files_with_its_default(folder: Path) -> None:
    assert completed("ebpfprof run -- some-", folder) == ["compopt -o default"]
    assert completed("ebpfprof attach -o some-", folder) == ["compopt -o default"]
    assert completed("ebpfprof report some-", folder) == ["compopt -o default"]
    assert completed("ebpfprof diff some-program some-", folder) == ["compopt -o default"]


@pytest.mark.parametrize(
    ("shell", "words"),
    [("bash", "complete -o nosort -F"), ("zsh", "#compdef ebpfprof"), ("fish", "complete --no-")],
)
def test_each_shell_has_a_script(shell: str, words: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert words in result.output
    assert f"_EBPFPROF_COMPLETE={shell}_complete" in result.output


def test_an_unknown_shell_is_refused() -> None:
    result = CliRunner().invoke(cli, ["completion", "ksh"])
    assert result.exit_code == 2
    assert 'SHELL must be one of bash, zsh, fish, not "ksh".' in result.output
