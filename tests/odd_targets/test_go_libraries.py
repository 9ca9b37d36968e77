"""Go code that is not in the executable: a library for C, and a program that ld.so started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from tests.builds import in_full
from tests.kernel.programs import NEWEST, TARGETS, program
from tests.kernel.verbs import verb
from tests.recorder import only_profile, run
from tests.toolchains import toolchain

LOADER = "/lib64/ld-linux-x86-64.so.2"
WORKS = "ebpfprof can record its CPU profile, with the names of Go functions: --profile cpu."
HOST = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).Work(); print('ready', flush=True); input()"


@dataclass(frozen=True)
class Started:
    pid: int
    go_file: Path
    """The mapped file with Go code."""
    sentence: str


@contextmanager
def started(*command: str | Path) -> Iterator[int]:
    """The process, from its line "ready" until its input closes."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"ready")
            yield process.pid
        finally:
            process.kill()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    path = tmp_path_factory.mktemp("library") / "libwork.so"
    command = ("build", "-buildmode=c-shared", "-buildvcs=false", "-o", path, ".")
    toolchain(NEWEST).go(*command, cwd=TARGETS / "golibrary", env={"CGO_ENABLED": "1"})
    with started(sys.executable, "-c", HOST, path) as pid:
        yield Started(pid, path, f"{path} in process {pid} is a Go library: {WORKS}")


@pytest.fixture(scope="module")
def loaded() -> Iterator[Started]:
    path = program("remapped", mode="cgo")
    with started(LOADER, path) as pid:
        loader = Path(LOADER).resolve().name
        yield Started(
            pid,
            path,
            f"{path} in process {pid} is a Go program, started by {loader}: {WORKS} For all "
            "profiles, start the program itself.",
        )


@pytest.fixture(params=["library", *in_full("loaded")])
def target(request: pytest.FixtureRequest) -> Started:
    found: Started = request.getfixturevalue(request.param)
    return found


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_the_file_with_go_code_is_named(target: Started, tmp_path: Path) -> None:
    options = ("--profile", "block", "--duration", "0.5")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.NOT_GO_PROGRAM
    assert target.sentence in in_one_line(finished.stderr)
    assert "upx" not in finished.stderr


@pytest.mark.parametrize("name", ["dump", "trace"])
def test_other_verbs_name_it_too(target: Started, name: str, tmp_path: Path) -> None:
    output = verb(name, "--pid", str(target.pid), folder=tmp_path)
    assert output.code == ExitCode.NOT_GO_PROGRAM
    assert target.sentence in in_one_line(output.stderr)


def test_it_is_listed_with_what_can_be_recorded(target: Started) -> None:
    rows = json.loads(verb("list", "--all", "--json").stdout)["processes"]
    (row,) = (row for row in rows if row["pid"] == target.pid)
    assert row["go_version"].startswith("go1.27")
    assert not row["supported"]
    why_not = f"only its CPU profile: {target.go_file} is Go, not the executable"
    assert row["why_not"] == why_not


@pytest.mark.target("c-shared in a Python process, a program started through ld.so", "CPU profile")
@pytest.mark.full
def test_its_cpu_profile_has_names(target: Started, tmp_path: Path) -> None:
    options = ("--profile", "cpu", "--duration", "0.5")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    assert str(target.go_file) in in_one_line(finished.stderr)
    leaves = {s.locations[0].frames[0].function for s in only_profile(tmp_path).samples}
    assert "main.compute" in leaves
