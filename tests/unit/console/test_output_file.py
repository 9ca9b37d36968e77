"""The output file: complete or absent, never through someone's link, never lost in silence."""

import errno
import os
import re
import secrets
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.console import output_file
from ebpfprof.console.output_file import OutputFile
from ebpfprof.console.output_folder import OutputFolder
from ebpfprof.errors import OutputError
from tests.unit.console.output_child import ROOT, spawn

DATA = os.urandom(200_000)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@pytest.fixture(params=["nameless", "named"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs with O_TMPFILE, and as if the file system did not know it."""
    if request.param == "named":
        real = os.open

        def without_tmpfile(
            path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
        ) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            return real(path, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", without_tmpfile)


@pytest.fixture(autouse=True)
def no_descriptor_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Also the working directory and the temporary one are the test's own."""
    (tmp_path / "cwd").mkdir()
    (tmp_path / "temp").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def rescued(error: pytest.ExceptionInfo[OutputError]) -> Path:
    """The file that the message says the profile was saved as."""
    found = re.search(r"saved as (\S+) instead\.$", str(error.value))
    assert found, str(error.value)
    return Path(found[1])


@pytest.mark.usefixtures("either_way")
def test_the_file_appears_complete_at_commit_for_the_owner_only(folder: Path) -> None:
    path = folder / "api.pb.gz"
    file = OutputFile.prepare(path)
    assert file.name == str(path)
    assert not path.exists()
    file.commit(DATA)
    assert path.read_bytes() == DATA
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(folder) == ["api.pb.gz"]


@pytest.mark.usefixtures("either_way")
def test_discard_leaves_nothing_and_can_be_repeated(folder: Path) -> None:
    file = OutputFile.prepare(folder / "api.pb.gz")
    file.discard()
    file.discard()
    assert os.listdir(folder) == []
    with pytest.raises(ValueError, match="already closed"):
        file.commit(DATA)


@pytest.mark.usefixtures("either_way")
def test_leaving_the_block_without_commit_discards(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt), OutputFile.prepare(folder / "api.pb.gz"):
        raise KeyboardInterrupt
    assert os.listdir(folder) == []


@pytest.mark.usefixtures("either_way")
def test_the_umask_does_not_matter(folder: Path) -> None:
    before = os.umask(0o777)
    try:
        OutputFile.prepare(folder / "api.pb.gz").commit(DATA)
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "api.pb.gz").stat().st_mode) == 0o600


@pytest.mark.usefixtures("either_way")
def test_an_older_file_is_replaced_and_its_other_names_keep_it(folder: Path) -> None:
    path, other = folder / "api.pb.gz", folder / "passwd"
    other.write_text("root::0:0")
    path.hardlink_to(other)
    OutputFile.prepare(path, if_taken="replace").commit(DATA)
    assert path.read_bytes() == DATA
    assert other.read_text() == "root::0:0"
    assert sorted(os.listdir(folder)) == ["api.pb.gz", "passwd"]


@pytest.mark.usefixtures("either_way")
def test_an_older_file_is_not_replaced_without_being_told(folder: Path) -> None:
    path = folder / "api.pb.gz"
    path.write_text("older")
    with pytest.raises(OutputError, match=r"api.pb.gz is there already: .*--force"):
        OutputFile.prepare(path)
    assert path.read_text() == "older"
    assert os.listdir(folder) == ["api.pb.gz"]


@pytest.mark.usefixtures("either_way")
def test_a_file_that_comes_meanwhile_stays_and_the_profile_is_saved_as_what_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "x.html"
    file = OutputFile.prepare(path, suffix=".html")
    # As late as can be: after the last look at what is there.
    looked = OutputFolder.publish

    def publish(*args: Any, **how: Any) -> None:  # noqa: ANN401
        if not path.exists():
            path.write_text("another's")
        looked(*args, **how)

    monkeypatch.setattr(OutputFolder, "publish", publish)
    with pytest.raises(OutputError, match="File exists") as error:
        file.commit(DATA)
    saved = rescued(error)
    assert saved.suffix == ".html"
    assert saved.read_bytes() == DATA
    assert path.read_text() == "another's"
    assert os.listdir(folder) == ["x.html"]


def test_a_relative_path_is_below_the_directory_of_the_time(tmp_path: Path, folder: Path) -> None:
    file = OutputFile.prepare(Path("api.pb.gz"))
    os.chdir(folder)
    file.commit(DATA)
    assert (tmp_path / "cwd" / "api.pb.gz").read_bytes() == DATA


def make(kind: str, path: Path) -> None:
    match kind:
        case "symbolic link":
            (path.parent / "victim").write_text("untouched")
            path.symlink_to("victim")
        case "broken symbolic link":
            path.symlink_to("nowhere")
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))


KINDS = {
    "symbolic link": "is a symbolic link",
    "broken symbolic link": "is a symbolic link",
    "directory": "is a directory",
    "fifo": "is not a regular file",
    "socket": "is not a regular file",
}


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("kind", "complaint"), KINDS.items(), ids=KINDS.keys())
def test_what_is_no_regular_file_is_refused_at_once(
    folder: Path, kind: str, complaint: str
) -> None:
    path = folder / "x"
    make(kind, path)
    before = sorted(os.listdir(folder))
    with pytest.raises(OutputError, match=complaint) as error:
        OutputFile.prepare(path)
    assert str(path) in str(error.value)
    assert sorted(os.listdir(folder)) == before


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("kind", "complaint"), KINDS.items(), ids=KINDS.keys())
def test_what_is_put_in_the_way_meanwhile_is_refused_and_the_profile_saved(
    folder: Path, tmp_path: Path, kind: str, complaint: str
) -> None:
    path = folder / "x"
    file = OutputFile.prepare(path)
    make(kind, path)
    with pytest.raises(OutputError, match=complaint) as error:
        file.commit(DATA)
    saved = rescued(error)
    assert saved.parent == tmp_path / "cwd"
    assert saved.read_bytes() == DATA
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    if kind == "symbolic link":
        assert (folder / "victim").read_text() == "untouched"
    assert not [name for name in os.listdir(folder) if "ebpfprof" in name]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", ["symbolic link", "directory"])
def test_what_is_put_in_the_way_after_the_last_look_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = folder / "x"

    def late(name: str) -> None:
        real = getattr(os, name)

        def put(source: str, target: str, **how: Any) -> None:  # noqa: ANN401
            if not os.path.lexists(path):
                make(kind, path)
            real(source, target, **how)

        monkeypatch.setattr(os, name, put)

    late("link")
    late("rename")
    file = OutputFile.prepare(path, if_taken="replace")
    if kind == "symbolic link":
        file.commit(DATA)  # the link is replaced
        assert not path.is_symlink()
        assert path.read_bytes() == DATA
        assert (folder / "victim").read_text() == "untouched"
    else:
        with pytest.raises(OutputError, match="directory") as error:
            file.commit(DATA)
        assert rescued(error).read_bytes() == DATA
        assert os.listdir(folder) == ["x"]


def test_a_swapped_temporary_file_is_noticed_and_the_profile_saved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def swapped(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if target == "x":
            os.unlink(source, dir_fd=src_dir_fd)
            (folder / source).write_text("another file")
        real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", swapped)
    (folder / "x").write_text("older: only to replace a file a temporary name is needed")
    with pytest.raises(OutputError, match="replaced by another process") as error:
        OutputFile.prepare(folder / "x", if_taken="replace").commit(DATA)
    assert rescued(error).read_bytes() == DATA


@pytest.mark.usefixtures("either_way")
def test_a_temporary_name_that_was_guessed_is_not_written_through(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").write_text("untouched")
    (folder / "x").write_text("older")
    for guess in ("link", "file"):
        monkeypatch.setattr(secrets, "token_hex", lambda n, guess=guess: guess)
        planted = folder / f".ebpfprof-{guess}"
        if guess == "link":
            planted.symlink_to(tmp_path / "victim")
        else:
            planted.hardlink_to(tmp_path / "victim")
        with pytest.raises(OutputError, match="File exists"):
            OutputFile.prepare(folder / "x", if_taken="replace").commit(DATA)
        assert planted.exists()
    assert (tmp_path / "victim").read_text() == "untouched"
    assert (folder / "x").read_text() == "older"


def test_a_nameless_file_that_gets_no_name_costs_no_profile(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OutputError, match="Operation not permitted") as error:
        OutputFile.prepare(folder / "x").commit(DATA)
    assert rescued(error).read_bytes() == DATA


@pytest.mark.usefixtures("either_way")
def test_a_directory_swapped_for_a_link_does_not_lead_us_elsewhere(
    folder: Path, tmp_path: Path
) -> None:
    file = OutputFile.prepare(folder / "x")
    folder.rename(tmp_path / "moved")
    (tmp_path / "etc").mkdir()
    folder.symlink_to(tmp_path / "etc")
    file.commit(DATA)
    assert os.listdir(tmp_path / "etc") == []
    assert (tmp_path / "moved" / "x").read_bytes() == DATA


@pytest.mark.usefixtures("either_way")
def test_a_directory_that_vanished_costs_no_profile(folder: Path, tmp_path: Path) -> None:
    file = OutputFile.prepare(folder / "x")
    for name in os.listdir(folder):
        (folder / name).unlink()
    folder.rmdir()
    with pytest.raises(OutputError, match=r"Could not write .*/out/x: No such file") as error:
        file.commit(DATA)
    saved = rescued(error)
    assert saved.parent == tmp_path / "cwd"
    assert saved.read_bytes() == DATA


def test_the_temporary_directory_is_next_in_a_private_folder(folder: Path, tmp_path: Path) -> None:
    os.chdir(folder)
    file = OutputFile.prepare(Path("x"))
    folder.rmdir()
    with pytest.raises(OutputError) as error:
        file.commit(DATA)
    saved = rescued(error)
    assert saved.read_bytes() == DATA
    assert saved.parent.parent == tmp_path / "temp"
    assert stat.S_IMODE(saved.parent.stat().st_mode) == 0o700


def test_a_profile_that_no_place_takes_is_said_to_be_lost(folder: Path, tmp_path: Path) -> None:
    os.chdir(folder)
    file = OutputFile.prepare(Path("x"))
    folder.rmdir()
    (tmp_path / "temp").rmdir()
    with pytest.raises(OutputError, match=r"is lost: .*No such file.*; No such file"):
        file.commit(DATA)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    where = tmp_path / "tiny"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0777", "tmpfs", where], check=True)
    yield where
    os.chdir("/")
    subprocess.run(["umount", where], check=True)


@needs_root
@pytest.mark.usefixtures("either_way")
def test_a_full_disk_costs_no_profile_and_no_older_file(tiny: Path, tmp_path: Path) -> None:
    (tiny / "x").write_text("older")
    with pytest.raises(OutputError, match="No space left on device") as error:
        OutputFile.prepare(tiny / "x", if_taken="replace").commit(DATA)
    saved = rescued(error)
    assert saved.parent == tmp_path / "cwd"
    assert saved.read_bytes() == DATA
    assert os.listdir(tiny) == ["x"]
    assert (tiny / "x").read_text() == "older"


@needs_root
def test_full_disks_everywhere_leave_no_debris(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tiny))
    os.chdir(tiny)
    with pytest.raises(OutputError, match=r"is lost: .*No space.*; No space"):
        OutputFile.prepare(Path("x")).commit(DATA)
    assert os.listdir(tiny) == []


@needs_root
def test_a_read_only_file_system_is_refused_at_once(tiny: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", tiny], check=True)
    with pytest.raises(OutputError, match="Read-only file system"):
        OutputFile.prepare(tiny / "x")


def test_a_killed_run_leaves_nothing() -> None:
    # /dev/shm is a tmpfs, which knows O_TMPFILE.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        child = spawn(
            "file = OutputFile.prepare(Path(sys.argv[1])); print('ready', flush=True); input()",
            f"{folder}/x",
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.kill()
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        assert os.listdir(folder) == []


KILLED_AT_ITS_NAME = """
import signal
def killed(name):
    real = getattr(os, name)
    def at_once(*given, **how):
        real(*given, **how)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(os, name, at_once)
killed("link")
killed("rename")
OutputFile.prepare(Path(sys.argv[1]), if_taken="replace").commit(b"whole")
"""


def test_killed_between_any_two_steps_a_new_file_is_whole_and_alone() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        child = spawn(KILLED_AT_ITS_NAME, f"{folder}/x")
        _, said = child.communicate()
        assert child.returncode == -signal.SIGKILL, said
        assert os.listdir(folder) == ["x"]
        assert (Path(folder) / "x").read_bytes() == b"whole"


def test_killed_while_it_replaces_a_file_that_one_is_whole() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / "x").write_text("older")
        child = spawn(KILLED_AT_ITS_NAME, f"{folder}/x")
        _, said = child.communicate()
        assert child.returncode == -signal.SIGKILL, said
        # The new one has its temporary name still: docs/faults.md tells of it.
        left, name = sorted(os.listdir(folder))
        assert (name, (Path(folder) / "x").read_text()) == ("x", "older")
        assert re.fullmatch(r"\.ebpfprof-[0-9a-f]{32}", left)


def test_the_children_of_these_tests_run_the_code_under_test() -> None:
    assert Path(output_file.__file__) == ROOT / "ebpfprof" / "console" / "output_file.py"


@pytest.mark.usefixtures("either_way")
def test_the_data_is_durable_before_it_has_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync = os.fsync

    def watched_fsync(fd: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        assert steps[-1] == "directory" or os.fstat(fd).st_size == len(DATA)
        fsync(fd)

    def watch(name: str) -> None:
        real = getattr(os, name)

        def watched(source: str, target: str, **how: Any) -> None:  # noqa: ANN401
            real(source, target, **how)
            steps.append(f"named {target}")

        monkeypatch.setattr(os, name, watched)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    watch("link")
    watch("rename")
    OutputFile.prepare(folder / "x").commit(DATA)
    assert steps == ["file", "named x", "directory"]
