"""A process whose executable lies on a silent file system: nothing waits for it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.process.file_opener import WorkerFileOpener
from tests.kernel.programs import program
from tests.kernel.unanswered import answering, unanswered
from tests.kernel.verbs import DEADLINE_S, verb
from tests.recorder import run
from tests.server.serving import Server
from tests.targets_run import Target

WORKER = "ebpfprof-files"


def left_behind() -> set[int]:
    """File workers that ebpfprof left behind: they are stuck, or about to end."""
    found = set()
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            name, _, rest = each.read_text().partition("(")[2].rpartition(")")
            if name == WORKER and rest.split()[1] == "1":
                found.add(int(each.parent.name))
    return found


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A process, and its executable can't be read any more."""
    path = tmp_path_factory.mktemp("fuse") / f"silent-{os.getpid()}"
    before = left_behind()
    with ExitStack() as held, ExitStack() as mounted:
        falls_silent = mounted.enter_context(answering(path, program("sleeper").read_bytes()))
        # By way of a shell: while Python waits for exec, no thread of it can answer.
        target = Target.start(Path("/bin/sh"), "-c", f"exec {path}")
        held.callback(target.kill)  # last: it can't end before its pages come, or never will
        falls_silent.set()
        yield target
    until = monotonic() + DEADLINE_S
    while left_behind() - before:  # those that were stuck end now
        assert monotonic() < until
        sleep(0.05)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Another one, with a name that no other process has."""
    path = tmp_path_factory.mktemp("bin") / f"sound-{os.getpid()}"
    with Target.start(Path(shutil.copy(program("sleeper"), path))) as target:
        yield target


@pytest.mark.full
def test_list_reports_the_silent_process(silent: Target, sound: Target) -> None:
    output = verb("list", "--json")
    found = json.loads(output.stdout)
    assert silent.pid in found["unanswered"]
    rows = {row["pid"]: row for row in found["processes"]}
    assert rows[sound.pid]["supported"]
    assert silent.pid not in rows
    assert f"process {silent.pid} (silent-" in output.stderr
    assert "did not respond within 3 s and is omitted" in output.stderr
    assert output.code == ExitCode.OK


@pytest.mark.full
def test_another_process_is_found_by_its_name(
    silent: Target, sound: Target, tmp_path: Path
) -> None:
    name = f"sound-{os.getpid()}"
    finished = run("--name", name, "-d", "0.2", folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    assert f"process {silent.pid} (silent-" in finished.stderr
    assert f"{sound.pid} ({name})" in finished.stderr


def test_attach_refuses_the_silent_process(silent: Target, tmp_path: Path) -> None:
    finished = run("--pid", str(silent.pid), "-d", "0.2", folder=tmp_path)
    assert finished.code == ExitCode.FAILURE
    assert (
        f"The executable of process {silent.pid} can't be read: its file system did not answer"
        in (finished.stderr)
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_dump_refuses_the_silent_process(silent: Target) -> None:
    output = verb("dump", "--pid", str(silent.pid))
    assert output.code == ExitCode.FAILURE
    assert "its file system did not answer" in output.stderr


def test_attach_refuses_a_process_of_an_unmounted_file_system(tmp_path: Path) -> None:
    path = tmp_path / f"gone-{os.getpid()}"
    with ExitStack() as held:
        with answering(path, program("sleeper").read_bytes()):
            target = Target.start(Path("/bin/sh"), "-c", f"exec {path}")
            held.callback(target.kill)
        finished = run("--pid", str(target.pid), "-d", "0.2", folder=tmp_path)
    assert finished.code == ExitCode.FAILURE
    assert f"The executable of process {target.pid} can't be read: Transport" in finished.stderr


@pytest.mark.full
def test_a_silent_library_or_debug_file_is_skipped(tmp_path: Path) -> None:
    path, sound = tmp_path / "silent.so", tmp_path / "sound.so"
    sound.write_bytes(b"here")
    root_fd = os.open(tmp_path, os.O_PATH)
    with unanswered(path), WorkerFileOpener(patience_s=0.5) as files:
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"did not answer within 0\.5 s"):
                files.open_in_root(root_fd, "/silent.so")
            with open(files.open_in_root(root_fd, "/sound.so"), "rb") as file:
                assert file.read() == b"here"
        with pytest.raises(FileNotFoundError):
            files.open_in_root(root_fd, "/none.so")
        with pytest.raises(OSError, match="not a regular file"):
            files.open(f"/proc/{os.getpid()}/fd/{root_fd}")
    os.close(root_fd)


@pytest.mark.full
def test_another_process_is_served(silent: Target, sound: Target) -> None:
    with Server("--pid", str(sound.pid), "--profile", "block") as server:
        assert f"{sound.pid} (sound-" in server.ready
        assert "(silent-" not in server.said  # it was not asked for
        answer = server.get("/debug/pprof/block?seconds=1")
        assert answer.status == 200


@pytest.mark.full
def test_serve_all_go_skips_the_silent_process(silent: Target, sound: Target) -> None:
    with Server("--all-go", "--profile", "block") as server:
        assert server.ready
        answer = server.get(f"/proc/{sound.pid}/debug/pprof/block?seconds=1")
        assert answer.status == 200
        assert server.said.count(f"process {silent.pid} (silent-") == 1
