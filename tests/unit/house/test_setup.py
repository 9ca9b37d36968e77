"""tests/setup.sh: which checkout's code its environment runs if it is a link, copied or moved."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]
PARTS = ("ebpfprof", "symbolizer", "bpf", "docs")
FILES = ("LICENSE", "README.md", "pyproject.toml")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What setup.sh needs of a checkout, in another place."""
    folder = tmp_path / "a clone in größe x"
    for name in (*PARTS, "tests/requirements"):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=without)
    for name in (*FILES, "tests/setup.sh", "tests/toolchains.py"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def set_up(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "tests" / "setup.sh", "run"],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )


def environment_of_another(folder: Path) -> Path:
    """An environment as setup.sh makes them, elsewhere."""
    made = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    (made / ".setup-place").write_text(f"{folder}\n")
    return made


def test_an_environment_that_is_a_link_is_refused(clone: Path, tmp_path: Path) -> None:
    other = environment_of_another(tmp_path)
    before = sorted(other.rglob("*"))
    (clone / ".venv").symlink_to(other)
    done = set_up(clone)
    assert done.returncode == 1
    assert done.stderr == (
        f"setup: {clone}/.venv is a link. Remove it (rm .venv) and run this again.\n"
    )
    assert done.stdout == ""
    assert sorted(other.rglob("*")) == before


def test_an_environment_from_elsewhere_is_replaced(clone: Path, tmp_path: Path) -> None:
    shutil.copytree(environment_of_another(tmp_path), clone / ".venv", symlinks=True)
    done = set_up(clone, PIP_NO_INDEX="1", PIP_FIND_LINKS="")  # it has a pip, which gets nothing
    assert done.stdout.splitlines()[0] == "setup: python3 -m venv .venv"
    assert (clone / ".venv" / ".setup-place").read_text() == f"{clone}\n"
    assert (clone / ".venv" / "bin" / "pip").read_text().count(str(clone)) == 1
    assert done.returncode == 1
    assert "failed: .venv/bin/python -I -m pip install --require-hashes" in done.stderr


@pytest.mark.full
def test_a_new_environment_runs_the_code_beside_it(clone: Path, tmp_path: Path) -> None:
    done = set_up(clone)
    assert done.returncode == 0, done.stderr
    assert set_up(clone).stdout.splitlines() == ["setup: Go 1.27", "setup: ready"]
    first = subprocess.run(
        [clone / ".venv" / "bin" / "ebpfprof", "--version"], env={"LC_ALL": "C"}, check=False
    )
    assert first.returncode == 0, "the locale has no letters of that place"
    moved = clone.rename(tmp_path / "moved")
    done = set_up(moved)
    assert done.returncode == 0, done.stderr
    (moved / "ebpfprof" / "__init__.py").write_text('__version__ = "9.8.7"\n')
    output = subprocess.run(
        [moved / ".venv" / "bin" / "ebpfprof", "--version"], stdout=subprocess.PIPE, check=True
    )
    assert output.stdout == b"ebpfprof, version 9.8.7\n"
    # The code of another checkout is installed.
    pip = (moved / ".venv" / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps")
    subprocess.run((*pip, "--no-build-isolation", "--editable", ROOT), check=True)
    assert set_up(moved).returncode == 0
    again = subprocess.run(
        [moved / ".venv" / "bin" / "ebpfprof", "--version"], stdout=subprocess.PIPE, check=True
    )
    assert again.stdout == output.stdout
