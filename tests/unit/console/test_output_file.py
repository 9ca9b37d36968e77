"""The output file: complete or absent, never through someone's link, never lost in silence."""

import os
import secrets
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.console.output_file import OutputFile
from ebpfprof.errors import OutputError
from tests.unit.console.saved_output import DATA, rescued

pytestmark = pytest.mark.usefixtures("no_descriptor_leaks")


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
def test_discard_removes_the_file_and_can_be_repeated(folder: Path) -> None:
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
def test_the_umask_does_not_change_the_mode(folder: Path) -> None:
    before = os.umask(0o777)
    try:
        OutputFile.prepare(folder / "api.pb.gz").commit(DATA)
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "api.pb.gz").stat().st_mode) == 0o600


@pytest.mark.usefixtures("either_way")
def test_replacing_a_file_leaves_its_hard_links_unchanged(folder: Path) -> None:
    path, other = folder / "api.pb.gz", folder / "passwd"
    other.write_text("root::0:0")
    path.hardlink_to(other)
    OutputFile.prepare(path, if_taken="replace").commit(DATA)
    assert path.read_bytes() == DATA
    assert other.read_text() == "root::0:0"
    assert sorted(os.listdir(folder)) == ["api.pb.gz", "passwd"]


@pytest.mark.usefixtures("either_way")
def test_an_existing_file_is_not_replaced_by_default(folder: Path) -> None:
    path = folder / "api.pb.gz"
    path.write_text("older")
    with pytest.raises(OutputError, match=r"api.pb.gz is there already: .*--force"):
        OutputFile.prepare(path)
    assert path.read_text() == "older"
    assert os.listdir(folder) == ["api.pb.gz"]


@pytest.mark.usefixtures("either_way")
def test_a_file_that_appears_late_stays_and_the_profile_is_rescued(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "x.html"
    file = OutputFile.prepare(path, suffix=".html")
    sync = os.fsync

    def sync_late(fd: int) -> None:
        """As late as can be: after the last check of what is there."""
        if not path.exists():
            path.write_text("another's")
        sync(fd)

    monkeypatch.setattr(os, "fsync", sync_late)
    with pytest.raises(OutputError, match="File exists") as error:
        file.commit(DATA)
    saved = rescued(error)
    assert saved.suffix == ".html"
    assert saved.read_bytes() == DATA
    assert path.read_text() == "another's"
    assert os.listdir(folder) == ["x.html"]


def test_a_relative_path_is_resolved_at_prepare(tmp_path: Path, folder: Path) -> None:
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
def test_a_path_that_is_not_a_regular_file_is_refused_at_once(
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
def test_an_obstacle_placed_later_is_refused_and_the_profile_rescued(
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
def test_an_obstacle_placed_after_the_last_check_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = folder / "x"

    def late(name: str) -> None:
        real = getattr(os, name)

        def put(source: str, target: str, **how: Any) -> None:  # noqa: ANN401 - as os.link
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


def test_a_swapped_temporary_file_is_noticed_and_the_profile_rescued(
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


@pytest.mark.usefixtures("either_way")
def test_a_directory_swapped_for_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    file = OutputFile.prepare(folder / "x")
    folder.rename(tmp_path / "moved")
    (tmp_path / "etc").mkdir()
    folder.symlink_to(tmp_path / "etc")
    file.commit(DATA)
    assert os.listdir(tmp_path / "etc") == []
    assert (tmp_path / "moved" / "x").read_bytes() == DATA


@pytest.mark.usefixtures("either_way")
def test_data_is_synced_before_the_file_gets_its_name(
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

        def watched(source: str, target: str, **how: Any) -> None:  # noqa: ANN401 - as os.link
            real(source, target, **how)
            steps.append(f"named {target}")

        monkeypatch.setattr(os, name, watched)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    watch("link")
    watch("rename")
    OutputFile.prepare(folder / "x").commit(DATA)
    assert steps == ["file", "named x", "directory"]
