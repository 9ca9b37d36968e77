"""tests/pytest.sh: what runs when, what runs again, and what fails the run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.builds import in_full

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[3]
# What is not needed takes half of the time.
PLUGINS = "-p no:hypothesispytest -p no:anyio -p tests.conftest"
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
# Passes if the other one is running, too.
MEETING = """
import time
from pathlib import Path
def meet(mine, other):
    Path(mine).touch()
    until = time.monotonic() + 20
    while not Path(other).exists():
        assert time.monotonic() < until
        time.sleep(0.01)  # the other one may still be starting
def test_{mine}(): meet("{mine}", "{other}")
"""
# Passes once those have ended, if no other one is running; it takes so long that one would meet it.
ALONE = """
import pytest
@pytest.mark.alone
@pytest.mark.parametrize("name", "ab")
def test_alone(name):
    assert Path("one").exists() and Path("other").exists()
    Path("running").mkdir()
    time.sleep(0.1)  # another one would fail in mkdir meanwhile
    Path("running").rmdir()
"""
LEAVING = """
import os, tempfile
def test_leaving(): open(os.path.join(tempfile.mkdtemp(prefix="left-"), "file"), "w").close()
"""
STOPPED = """
import os, signal
def test_stopped(): os.kill(os.getppid(), signal.SIGINT)
"""


def run(
    folder: Path, text: str, *arguments: str, file: str = "test_some.py"
) -> subprocess.CompletedProcess[str]:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n    full\n")
    ours = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    # pytest keeps the folders of its last runs where TMPDIR is: not among what this run leaves.
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [ROOT / "tests/pytest.sh", *arguments],
        cwd=folder,
        env={**ours, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": PLUGINS, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )


def unsteady(count: int) -> str:
    return STEADY + "".join(UNSTEADY.format(number=number) for number in range(count))


def test_what_a_run_has(tmp_path: Path) -> None:
    """Tests marked `alone` after others side by side, none marked `full`, unsteady ones twice."""
    assert len(os.sched_getaffinity(0)) > 1, "Give the tests a second processor."
    full = "@pytest.mark.full\n" + BROKEN
    one, other = (MEETING.format(mine=a, other=b) for a, b in (("one", "other"), ("other", "one")))
    (tmp_path / "test_other.py").write_text(other)  # files are run side by side
    done = run(tmp_path, one + unsteady(8) + ALONE + full)
    assert done.returncode == 0, done.stdout
    names = done.stdout.rpartition("\nUnsteady: ")[2].splitlines()[1:]
    assert names == [f"  test_some.py::test_unsteady_{number}" for number in range(8)]


@pytest.mark.parametrize(
    "marked", ["", *in_full("import pytest\npytestmark = pytest.mark.alone\n")]
)
def test_temporary_files_left_behind_are_a_failure(marked: str, tmp_path: Path) -> None:
    """Also of the processes in which tests run side by side."""
    done = run(tmp_path, marked + LEAVING)
    assert "1 passed" in done.stdout
    assert "\nTemporary files left behind:\nleft-" in done.stdout
    assert done.returncode == 1


def test_an_interrupted_run_is_a_failure_and_ends(tmp_path: Path) -> None:
    alone = "import pytest\n@pytest.mark.alone\n" + STEADY
    (tmp_path / "test_alone.py").write_text(alone)
    done = run(tmp_path, STOPPED)
    assert done.returncode == 1
    assert done.stdout.count("test session starts") == 1


@pytest.mark.full
def test_the_full_run_has_tests_marked_full(tmp_path: Path) -> None:
    marked = "import pytest\n@pytest.mark.full\n" + BROKEN
    assert run(tmp_path, STEADY + marked, "--full").returncode == 1


@pytest.mark.full
def test_a_ninth_unsteady_test_is_a_failure(tmp_path: Path) -> None:
    assert run(tmp_path, unsteady(9)).returncode == 1


@pytest.mark.full
def test_a_test_that_fails_twice_is_a_failure(tmp_path: Path) -> None:
    done = run(tmp_path, BROKEN + UNSTEADY.format(number=0))
    assert done.returncode == 1
    assert done.stdout.endswith("again:\n  test_some.py::test_unsteady_0\n")


@pytest.mark.full
def test_tests_of_harm_get_no_second_run(tmp_path: Path) -> None:
    assert run(tmp_path, unsteady(1), file="tests/kernel/test_kill.py").returncode == 1


@pytest.mark.full
def test_a_file_that_cannot_be_collected_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(STEADY)
    assert run(tmp_path, "this is not Python").returncode == 1


@pytest.mark.full
def test_a_run_without_tests_is_a_failure(tmp_path: Path) -> None:
    assert run(tmp_path, STEADY, "-k", "nothing").returncode == 5
