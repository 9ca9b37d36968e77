"""The output file: a profile that can't be written to its path is saved elsewhere."""

import errno
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.console.output_file import OutputFile
from ebpfprof.errors import OutputError
from tests.unit.console.saved_output import DATA, rescued

pytestmark = pytest.mark.usefixtures("no_descriptor_leaks")


def test_a_profile_is_rescued_if_its_file_gets_no_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OutputError, match="Operation not permitted") as error:
        OutputFile.prepare(folder / "x").commit(DATA)
    assert rescued(error).read_bytes() == DATA


@pytest.mark.usefixtures("either_way")
def test_a_profile_is_rescued_if_its_folder_vanished(folder: Path, tmp_path: Path) -> None:
    file = OutputFile.prepare(folder / "x")
    for name in os.listdir(folder):
        (folder / name).unlink()
    folder.rmdir()
    with pytest.raises(OutputError, match=r"Could not write .*/out/x: No such file") as error:
        file.commit(DATA)
    saved = rescued(error)
    assert saved.parent == tmp_path / "cwd"
    assert saved.read_bytes() == DATA


def test_profiles_are_rescued_into_a_private_temporary_folder(folder: Path, tmp_path: Path) -> None:
    os.chdir(folder)
    file = OutputFile.prepare(Path("x"))
    folder.rmdir()
    with pytest.raises(OutputError) as error:
        file.commit(DATA)
    saved = rescued(error)
    assert saved.read_bytes() == DATA
    assert saved.parent.parent == tmp_path / "temp"
    assert stat.S_IMODE(saved.parent.stat().st_mode) == 0o700


def test_a_profile_without_any_place_is_reported_as_lost(folder: Path, tmp_path: Path) -> None:
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


@pytest.mark.machine
@pytest.mark.usefixtures("either_way")
def test_a_full_disk_loses_neither_the_profile_nor_an_old_file(tiny: Path, tmp_path: Path) -> None:
    (tiny / "x").write_text("older")
    with pytest.raises(OutputError, match="No space left on device") as error:
        OutputFile.prepare(tiny / "x", if_taken="replace").commit(DATA)
    saved = rescued(error)
    assert saved.parent == tmp_path / "cwd"
    assert saved.read_bytes() == DATA
    assert os.listdir(tiny) == ["x"]
    assert (tiny / "x").read_text() == "older"


@pytest.mark.machine
def test_full_disks_everywhere_leave_no_partial_file(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tiny))
    os.chdir(tiny)
    with pytest.raises(OutputError, match=r"is lost: .*No space.*; No space"):
        OutputFile.prepare(Path("x")).commit(DATA)
    assert os.listdir(tiny) == []


@pytest.mark.machine
def test_a_read_only_file_system_is_refused_at_once(tiny: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", tiny], check=True)
    with pytest.raises(OutputError, match="Read-only file system"):
        OutputFile.prepare(tiny / "x")
