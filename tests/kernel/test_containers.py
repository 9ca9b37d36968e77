"""Targets whose file cannot be found by its name: in containers, deleted, replaced meanwhile."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builds import in_full
from tests.kernel.kernel_state import children, has_probes
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.programs import program
from tests.recorder import names_in, only_profile, recording
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]

# $1 is a folder of its own, $2 the program. What is mounted is seen in there only.
TMPFS = 'mount -t tmpfs none "$1" && cp "$2" "$1/app" && exec chroot "$1" /app'
# As containers do it.
OVERLAY = """
mount -t tmpfs none "$1" && mkdir "$1/image" "$1/upper" "$1/work" "$1/root" &&
cp "$2" "$1/image/app" &&
mount -t overlay -o "lowerdir=$1/image,upperdir=$1/upper,workdir=$1/work" none "$1/root" &&
exec chroot "$1/root" /app
"""
NAMESPACES = {
    "tmpfs": (TMPFS, []),
    "overlay": (OVERLAY, []),
    "overlay in a user namespace": (OVERLAY, ["--user", "--map-root-user"]),
}


@contextmanager
def container(how: str, file: Path, folder: Path) -> Iterator[tuple[Target, int]]:
    """The program as /app, process 1, in a container; and its pid as seen from outside."""
    script, options = NAMESPACES[how]
    root = folder / "root"
    root.mkdir()
    isolating = [*options, "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c"]
    arguments = [*isolating, script, "sh", str(root), str(file)]
    with Target.start(Path("/usr/bin/unshare"), *arguments, ready="ready 1") as target:
        (pid,) = children(target.pid)
        assert list(root.iterdir()) == []
        assert os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
        yield target, pid


def recorded_functions(target: Target, pid: int, folder: Path) -> set[str]:
    """Record a run of nopprof; the functions of package main that waited, by name."""
    with recording(pid, folder) as recorder:
        assert has_probes(pid)
        target.ask("go", "done")
        recorder.interrupt()
        finished = recorder.finish()
        assert finished.code == 0, finished.stderr
    assert not has_probes(pid)
    return {
        frame.function
        for sample in only_profile(folder).samples
        for location in sample.locations
        for frame in location.frames
        if frame.function.startswith("main.")
    }


WAITING = {"main.handOver", "main.hold", "main.hold.func1", "main.gather", "main.main"}


@NEEDS_NAMESPACES
@pytest.mark.parametrize("how", [*in_full("tmpfs", "overlay"), "overlay in a user namespace"])
def test_a_container_is_recorded_from_outside(how: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with container(how, program("nopprof"), tmp_path) as (target, pid):
        assert recorded_functions(target, pid, out) >= WAITING
    assert names_in(out) == {f"app-{pid}.block.pb.gz"}
    assert only_profile(out).mappings[0].filename.endswith("/app")


INSIDE = """
import os, sys
from pathlib import Path
from tests.kernel.test_containers import WAITING, recorded_functions
from tests.targets_run import Target
assert os.getpid() == 1
with Target.start(Path(sys.argv[1])) as target:
    print("ready", recorded_functions(target, target.pid, Path(sys.argv[2])) >= WAITING)
"""


@NEEDS_NAMESPACES
def test_within_a_container_pids_are_the_containers(tmp_path: Path) -> None:
    isolating = ["--mount-proc", "--pid", "--fork", "--kill-child"]
    arguments = [*isolating, sys.executable, "-c", INSIDE, str(program("nopprof")), str(tmp_path)]
    env = {"PYTHONPATH": str(ROOT)}
    with Target.start(Path("/usr/bin/unshare"), *arguments, env=env, ready=None) as unshared:
        assert unshared.expect("ready") == "ready True"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A file of our own with the program in it."""
    (tmp_path / "bin").mkdir()
    return Path(shutil.copy(program("nopprof"), tmp_path / "bin" / "nopprof"))


@pytest.mark.full
def test_a_deleted_program_is_recorded(copy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with Target.start(copy) as target:
        copy.unlink()
        assert recorded_functions(target, target.pid, out) >= WAITING
        assert names_in(out) == {f"nopprof-{target.pid}.block.pb.gz"}
    assert only_profile(out).mappings[0].filename == str(copy)


@pytest.mark.parametrize("by", ["another build", *in_full("something else")])
def test_a_replaced_program_is_recorded_from_its_running_file(
    by: str, copy: Path, tmp_path: Path
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    if by == "another build":
        shutil.copy(program("nopprof", "1.19"), other)
    else:
        other.write_text("no program at all")
    with Target.start(copy) as target:
        os.replace(other, copy)
        assert recorded_functions(target, target.pid, out) >= WAITING
    (mapping, *_) = only_profile(out).mappings
    assert mapping.filename == str(copy)


def test_a_program_without_a_file_is_recorded(tmp_path: Path) -> None:
    """As a memfd: what a launcher loads from memory."""
    launch = (
        "import os, sys; fd = os.memfd_create('app');"
        "os.write(fd, open(sys.argv[1], 'rb').read());"
        "os.execve(fd, ['app'], dict(os.environ))"
    )
    arguments = ["-c", launch, str(program("nopprof"))]
    with Target.start(Path(sys.executable), *arguments) as target:
        assert recorded_functions(target, target.pid, tmp_path) >= WAITING
