"""The output file of a process that is killed: whole, and nothing beside it."""

import os
import re
import signal
import tempfile
from pathlib import Path

import pytest

from ebpfprof.console import output_file
from tests.unit.console.output_child import ROOT, spawn

pytestmark = pytest.mark.usefixtures("no_descriptor_leaks")


def test_a_killed_run_leaves_no_file() -> None:
    # /dev/shm is a tmpfs, which knows O_TMPFILE.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        child = spawn(
            "file = OutputFile.prepare(Path(sys.argv[1])); print('ready', flush=True); input()",
            f"{folder}/x",
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.kill()
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        assert os.listdir(folder) == []


KILLED_AT_ITS_NAME = """
import signal
def killed(name):
    real = getattr(os, name)
    def at_once(*given, **how):
        real(*given, **how)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(os, name, at_once)
killed("link")
killed("rename")
OutputFile.prepare(Path(sys.argv[1]), if_taken="replace").commit(b"whole")
"""


def test_a_new_file_of_a_killed_process_is_whole_and_alone() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        child = spawn(KILLED_AT_ITS_NAME, f"{folder}/x")
        _, output = child.communicate()
        assert child.returncode == -signal.SIGKILL, output
        assert os.listdir(folder) == ["x"]
        assert (Path(folder) / "x").read_bytes() == b"whole"


def test_a_process_killed_while_replacing_leaves_the_old_file_whole() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / "x").write_text("older")
        child = spawn(KILLED_AT_ITS_NAME, f"{folder}/x")
        _, output = child.communicate()
        assert child.returncode == -signal.SIGKILL, output
        # The new one has its temporary name still: see docs/faults.md.
        left, name = sorted(os.listdir(folder))
        assert (name, (Path(folder) / "x").read_text()) == ("x", "older")
        assert re.fullmatch(r"\.ebpfprof-[0-9a-f]{32}", left)


def test_the_children_of_these_tests_run_the_code_under_test() -> None:
    assert Path(output_file.__file__) == ROOT / "ebpfprof" / "console" / "output_file.py"
