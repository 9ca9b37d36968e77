"""What is said where BCC's Python module is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ebpfprof.kernel.compiler import how_to_get_bcc

ROOT = Path(__file__).parents[3]


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A made-up folder for the system's packages, still empty."""
    folder = tmp_path / "lib"
    folder.mkdir()
    return folder


def environment(folder: Path, *, hides: bool) -> Path:
    """A virtual environment, with the file that Python's own venv writes."""
    shown = () if hides else ("--system-site-packages",)
    made = folder / "venv"
    command = [sys.executable, "-m", "venv", "--without-pip", *shown, str(made)]
    subprocess.run(command, check=True)
    return made


@pytest.mark.parametrize("packages", ["python3/dist-packages", "python3.13/site-packages"])
def test_an_environment_that_hides_the_systems_bcc_is_to_be_made_again(
    packages: str, system: Path, tmp_path: Path
) -> None:
    (system / packages / "bcc").mkdir(parents=True)
    output = how_to_get_bcc(environment(tmp_path, hides=True), system)
    assert output.startswith("This virtual environment hides the system's packages. ")
    assert "pipx install --force --system-site-packages" in output
    assert "apt-get" not in output


def test_without_bcc_an_environment_that_hides_packages_needs_both(
    system: Path, tmp_path: Path
) -> None:
    output = how_to_get_bcc(environment(tmp_path, hides=True), system)
    assert "apt-get install python3-bpfcc" in output
    assert "--system-site-packages" in output


def test_elsewhere_the_package_is_to_be_installed(system: Path, tmp_path: Path) -> None:
    for prefix in (environment(tmp_path, hides=False), tmp_path):
        output = how_to_get_bcc(prefix, system)
        assert "apt-get install python3-bpfcc" in output
        assert "--system-site-packages" not in output
