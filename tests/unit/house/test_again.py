"""tests/again.py: unsteady tests are named; tests that fail twice or too often fail the run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import MOST_UNSTEADY, OF_HARM

ROOT = Path(__file__).parents[3]
# What is not needed takes half of the time.
PLUGINS = "-p no:hypothesispytest -p no:anyio"
STEADY = "def test_steady(): pass\n"
BROKEN = "def test_broken(): assert False\n"
# Fails when it is run first.
UNSTEADY = """
from pathlib import Path
def test_unsteady_{number}():
    seen = Path("seen-{number}")
    first = not seen.exists()
    seen.touch()
    assert not first
"""

# Each passes if the other one is running, too.
MEETING = """
import time
from pathlib import Path
def meet(mine, other):
    Path(mine).touch()
    until = time.monotonic() + 20
    while not Path(other).exists():
        assert time.monotonic() < until
        time.sleep(0.01)  # looks again: the other one may still be starting
def test_one(): meet("one", "other")
def test_other(): meet("other", "one")
"""
# Passes once those have ended, if no other one is running; it takes so long that one would meet it.
ALONE = """
import pytest
@pytest.mark.alone
@pytest.mark.parametrize("name", "ab")
def test_alone(name):
    assert Path("one").exists() and Path("other").exists()
    Path("running").mkdir()
    time.sleep(0.1)  # for so long another one would fail in mkdir
    Path("running").rmdir()
"""


def again(
    folder: Path, text: str, *arguments: str, file: str = "test_some.py"
) -> subprocess.CompletedProcess[str]:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "tests.again", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": PLUGINS},
        capture_output=True,
        text=True,
        check=False,
    )


LEAVING = """
import os, tempfile
def test_leaving(): open(os.path.join(tempfile.mkdtemp(prefix="left-"), "file"), "w").close()
"""


def unsteady(count: int) -> str:
    return STEADY + "".join(UNSTEADY.format(number=number) for number in range(count))


def test_a_passing_test_runs_once(tmp_path: Path) -> None:
    done = again(tmp_path, STEADY)
    assert (done.returncode, done.stdout.count("1 passed")) == (0, 1)
    assert "Unsteady" not in done.stdout


def test_tests_marked_alone_run_after_the_others(tmp_path: Path) -> None:
    assert len(os.sched_getaffinity(0)) > 1, "Give the tests a second processor."
    done = again(tmp_path, MEETING + ALONE)
    assert done.returncode == 0, done.stdout
    assert "Unsteady" not in done.stdout


@pytest.mark.long
def test_a_failing_test_marked_alone_runs_again(tmp_path: Path) -> None:
    marked = UNSTEADY.format(number=0).replace("def", "import pytest\n@pytest.mark.alone\ndef", 1)
    done = again(tmp_path, STEADY + marked)
    assert done.returncode == 0
    assert done.stdout.endswith("by itself:\n  test_some.py::test_unsteady_0\n")
    assert again(tmp_path, "import pytest\n@pytest.mark.alone\n" + BROKEN).returncode == 1


def test_a_test_that_fails_once_is_named(tmp_path: Path) -> None:
    done = again(tmp_path, unsteady(MOST_UNSTEADY))
    assert done.returncode == 0
    named = done.stdout.rpartition("Unsteady: ")[2].splitlines()[1:]
    expected = [f"  test_some.py::test_unsteady_{number}" for number in range(MOST_UNSTEADY)]
    assert sorted(named) == expected


def test_too_many_unsteady_tests_are_a_failure(tmp_path: Path) -> None:
    done = again(tmp_path, unsteady(MOST_UNSTEADY + 1))
    assert done.returncode == 1
    assert f"{MOST_UNSTEADY + 1} tests failed, too many" in done.stdout


@pytest.mark.long
def test_failures_are_shown_after_the_last_run(tmp_path: Path) -> None:
    done = again(tmp_path, 'def test_broken(): raise ValueError("this is why")')
    assert "\ntest_some::test_broken: ValueError: this is why\n" in done.stdout
    done = again(tmp_path, unsteady(1))
    *_, last = done.stdout.split("test session starts")
    assert "\ntest_some::test_unsteady_0: assert not True" in last


def test_tests_of_harm_get_no_second_run(tmp_path: Path) -> None:
    file = "tests/kernel/test_kill.py"
    done = again(tmp_path, unsteady(1), file=file)
    assert done.returncode == 1
    assert f"never by chance:\n  {file}::test_unsteady_0\n" in done.stdout


@pytest.mark.parametrize("prefix", OF_HARM)
def test_modules_with_tests_of_harm_are_marked_alone(prefix: str) -> None:
    modules = list((ROOT / prefix).parent.glob(f"{Path(prefix).name}*.py"))
    assert modules
    for module in modules:
        assert "\npytestmark = pytest.mark.alone\n" in module.read_text(), module


@pytest.mark.parametrize(
    "others", ["", pytest.param(UNSTEADY.format(number=0), marks=pytest.mark.long)]
)
def test_a_test_that_fails_twice_is_a_failure(others: str, tmp_path: Path) -> None:
    done = again(tmp_path, others + BROKEN)
    assert done.returncode == 1
    assert "Unsteady" not in done.stdout


def test_other_failures_are_passed_on(tmp_path: Path) -> None:
    assert again(tmp_path, "this is no Python").returncode == 2
    assert again(tmp_path, STEADY, "-k", "nothing").returncode == 5


@pytest.mark.parametrize("marked", ["", "import pytest\npytestmark = pytest.mark.alone\n"])
def test_temporary_files_left_behind_are_a_failure(marked: str, tmp_path: Path) -> None:
    """Also of the processes in which tests run side by side."""
    done = again(tmp_path, marked + LEAVING)
    assert "1 passed" in done.stdout
    assert re.search(r"Left where temporary files are:\n  left-\w+\n\Z", done.stdout)
    assert done.returncode == 1
