"""tests/again.py: what failed once is named, what fails twice or too often is a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import MOST_UNSTEADY, OF_HARM

ROOT = Path(__file__).parents[2]
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


def again(
    folder: Path, text: str, *arguments: str, file: str = "test_some.py"
) -> subprocess.CompletedProcess[str]:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "tests.again", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def unsteady(count: int) -> str:
    return STEADY + "".join(UNSTEADY.format(number=number) for number in range(count))


def test_what_passes_is_run_once(tmp_path: Path) -> None:
    done = again(tmp_path, STEADY)
    assert (done.returncode, done.stdout.count("test session starts")) == (0, 1)
    assert "Unsteady" not in done.stdout


def test_what_fails_once_is_named(tmp_path: Path) -> None:
    done = again(tmp_path, unsteady(MOST_UNSTEADY))
    assert done.returncode == 0
    named = done.stdout.rpartition("Unsteady: ")[2].splitlines()[1:]
    expected = [f"  test_some.py::test_unsteady_{number}" for number in range(MOST_UNSTEADY)]
    assert named == expected


def test_what_fails_once_but_too_often_is_a_failure(tmp_path: Path) -> None:
    done = again(tmp_path, unsteady(MOST_UNSTEADY + 1))
    assert done.returncode == 1
    assert f"{MOST_UNSTEADY + 1} tests failed, too many" in done.stdout


def test_what_each_said_is_shown_after_the_last_run(tmp_path: Path) -> None:
    done = again(tmp_path, 'def test_broken(): raise ValueError("this is why")')
    assert "\ntest_some::test_broken: ValueError: this is why\n" in done.stdout
    done = again(tmp_path, unsteady(1))
    *_, last = done.stdout.split("test session starts")
    assert "\ntest_some::test_unsteady_0: assert not True" in last


def test_harm_is_never_unsteady(tmp_path: Path) -> None:
    file = "tests/kernel/test_kill.py"
    done = again(tmp_path, unsteady(1), file=file)
    assert done.returncode == 1
    assert f"never by chance:\n  {file}::test_unsteady_0\n" in done.stdout
    assert all(list((ROOT / each).parent.glob(f"{Path(each).name}*.py")) for each in OF_HARM)


@pytest.mark.parametrize("others", ["", UNSTEADY.format(number=0)])
def test_what_fails_twice_is_a_failure(others: str, tmp_path: Path) -> None:
    done = again(tmp_path, others + BROKEN)
    assert done.returncode == 1
    assert "Unsteady" not in done.stdout


def test_other_failures_are_passed_on(tmp_path: Path) -> None:
    assert again(tmp_path, "this is no Python").returncode == 2
    assert again(tmp_path, STEADY, "-k", "nothing").returncode == 5
