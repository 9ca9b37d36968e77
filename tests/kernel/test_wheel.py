"""The wheel by itself: built from the source distribution, installed elsewhere, used."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.kernel.programs import program
from tests.recorder import only_profile, run
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]


def build(what: str, source: Path, to: Path) -> Path:
    """Build an sdist or a wheel with hatchling, as pip would; return the file."""
    code = "import sys, hatchling.build as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"
    to.mkdir()
    subprocess.run([sys.executable, "-c", code, what, str(to)], cwd=source, check=True)
    (made,) = to.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    archive = build("sdist", ROOT, folder / "sdist")
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    (unpacked,) = folder.glob("ebpfprof-*")
    return build("wheel", unpacked, folder / "dist")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment with the wheel; what it depends on comes from this one."""
    folder = tmp_path_factory.mktemp("environment")
    making = [sys.executable, "-m", "venv", "--system-site-packages", str(folder)]
    subprocess.run(making, check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    # Behind the environment's own packages, so that this checkout's ebpfprof does not come first.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_it_carries_every_file_that_is_no_python(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder, place in (
        ("bpf", "ebpfprof/_bpf"),
        ("symbolizer/data", "symbolizer/data"),
        ("ebpfprof/data", "ebpfprof/data"),
        ("ebpfprof/web", "ebpfprof/web"),
    ):
        here = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert here
        for path in here:
            assert f"{place}/{path.relative_to(ROOT / folder)}" in names
    assert {"ebpfprof/py.typed", "symbolizer/py.typed"} <= names
    assert not any(name.startswith(("tests/", "bpf/")) for name in names)


def test_what_is_installed_records(installed: Path, tmp_path: Path) -> None:
    command = (str(installed / "bin" / "ebpfprof"), "attach")
    code = "import ebpfprof.sources as s; print(s.bpf_folder())"
    python = installed / "bin" / "python"
    assert (installed / "share/man/man1/ebpfprof.1").is_file()
    found = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    assert Path(os.fsdecode(found.stdout.strip())).is_relative_to(installed)
    with Target.start(program("sleeper")) as target:
        arguments = ("--pid", str(target.pid), "--duration", "0.1")
        finished = run(*arguments, folder=tmp_path, command=command)
    assert finished.code == 0, finished.stderr
    assert "ebpfprof" in only_profile(tmp_path).comments[0]
