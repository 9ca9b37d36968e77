"""The wheel by itself: built from the source distribution, installed elsewhere, used."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builds import in_full
from tests.kernel.programs import program
from tests.kernel.strangers import strangers
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
    folder = tmp_path_factory.mktemp("an environment of größe x")
    making = [sys.executable, "-m", "venv", "--system-site-packages", str(folder)]
    subprocess.run(making, check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    # Behind the environment's own packages, so that this checkout's ebpfprof does not come first.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_wheel_has_every_file_that_is_not_python(wheel: Path) -> None:
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


def test_the_installed_command_records(installed: Path, tmp_path: Path) -> None:
    command = (str(installed / "bin" / "ebpfprof"), "attach")
    code = "import ebpfprof.kernel.sources as s; print(s.bpf_folder())"
    python = installed / "bin" / "python"
    assert (installed / "share/man/man1/ebpfprof.1").is_file()
    found = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    assert Path(os.fsdecode(found.stdout.strip())).is_relative_to(installed)
    with Target.start(program("sleeper")) as target:
        arguments = ("--pid", str(target.pid), "--duration", "0.1")
        finished = run(*arguments, folder=tmp_path, command=command)
    assert finished.code == 0, finished.stderr
    assert "ebpfprof" in only_profile(tmp_path).comments[0]


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target.start(program("sleeper")) as running:
        yield running


@pytest.mark.parametrize("called", [*in_full("by its path", "by a link"), "by its name"])
def test_no_code_of_a_user_is_loaded_if_sudo_keeps_the_home(
    called: str, installed: Path, target: Target, tmp_path: Path
) -> None:
    his, script = strangers(tmp_path / "his"), installed / "bin" / "ebpfprof"
    env = his.environment
    subprocess.run([installed / "bin" / "python", "-c", ""], env=env, check=False)
    loaded = his.marks()
    assert {"home.pth", "path.sitecustomize"} <= set(loaded), "the test tells nothing"
    for mark in loaded:
        (his.folder / "marks" / mark).unlink()
    link = tmp_path / "a link"
    link.symlink_to(script)
    command = {"by its path": str(script), "by a link": str(link), "by its name": "ebpfprof"}
    search = f"{installed}/bin:/usr/bin:/bin"
    finished = run(
        *("--pid", str(target.pid), "--duration", "0.1", "-o", str(tmp_path / "waits.pb.gz")),
        folder=his.modules,
        command=("/usr/bin/env", f"PATH={search}", command[called], "attach"),
        env=env,
    )
    assert his.marks() == []
    assert finished.code == 0, finished.stderr


def test_processes_have_the_name_of_the_command(installed: Path, tmp_path: Path) -> None:
    words = ("run", "--profile", "cpu", "--", "/bin/sh", "-c", "cat /proc/$PPID/comm")
    done = subprocess.run(
        [installed / "bin" / "ebpfprof", *words], cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stdout == b"ebpfprof\n", done.stderr


LAUNCHER = ROOT / "ebpfprof" / "data" / "ebpfprof"
TELL = """
import sys
print([sys.executable, sys.flags.isolated, sys.argv])
"""


@pytest.mark.parametrize("has_python", [False, True])
def test_the_launcher_starts_the_python_of_its_environment(
    has_python: bool, tmp_path: Path
) -> None:
    """That of its environment; without one, that of the distribution."""
    folder = tmp_path / 'it\'s "größe" $HOME\n`x`'
    folder.mkdir()
    script = folder / "ebpfprof"
    shell, _, _ = LAUNCHER.read_text().rpartition("'''")
    script.write_text(shell + "'''" + TELL)
    script.chmod(0o755)
    python = Path("/usr/bin/python3")
    if has_python:
        python = folder / "python3"
        python.symlink_to("/usr/bin/python3")
    arguments = ["", "a b", "c\nd", "$(e)", "*", "größe"]
    done = subprocess.run([script, *arguments], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode() == f"{[str(python), 1, [str(script), *arguments]]}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_python_starts_is_delivered_later(
    number: signal.Signals, tmp_path: Path
) -> None:
    """The signal comes just before Python starts, which would end with Python's traceback."""
    script, python = tmp_path / "ebpfprof", tmp_path / "python3"
    script.write_text(LAUNCHER.read_text())
    python.write_text(
        f'#!/bin/sh\nkill -{int(number)} $$\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    for each in (script, python):
        each.chmod(0o755)
    done = subprocess.run([script, "list"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
