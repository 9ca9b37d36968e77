"""`-o -`: the profile on standard output: a file, a pipe or a terminal."""

import os
from pathlib import Path

import pytest

from tests.unit.console.output_child import spawn

COMMIT_TO_STDOUT = "OutputFile.prepare('-').commit(b'profile')"


def test_stdout_gets_only_the_profile(tmp_path: Path) -> None:
    child = spawn(COMMIT_TO_STDOUT, cwd=tmp_path)
    assert child.communicate() == (b"profile", b"")
    assert child.returncode == 0


def test_a_terminal_gets_no_binary() -> None:
    ours, theirs = os.openpty()
    child = spawn(COMMIT_TO_STDOUT, stdout=theirs)
    os.close(theirs)
    _, output = child.communicate()
    assert b"OutputError: A profile is binary and not for a terminal" in output
    os.close(ours)


def test_a_closed_stdout_is_refused_at_once() -> None:
    child = spawn(f"os.close(1); {COMMIT_TO_STDOUT}")
    _, output = child.communicate()
    assert b"OutputError: Standard output cannot be used: Bad file descriptor" in output


@pytest.mark.parametrize("why", ["No space left on device", "Broken pipe"])
def test_a_profile_is_rescued_if_stdout_fails(tmp_path: Path, why: str) -> None:
    if why == "Broken pipe":
        reading, stdout = os.pipe()
        os.close(reading)
    else:
        stdout = os.open("/dev/full", os.O_WRONLY)
    child = spawn(COMMIT_TO_STDOUT, cwd=tmp_path, stdout=stdout)
    os.close(stdout)
    _, output = child.communicate()
    assert (
        f"OutputError: Could not write standard output: {why}. What was recorded".encode() in output
    )
    (saved,) = tmp_path.iterdir()
    assert str(saved).encode() in output
    assert saved.read_bytes() == b"profile"
