"""The owner of the output file: the user behind sudo, if that user could have made the file."""

import os
import pwd
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebpfprof.console.output_file import OutputFile
from ebpfprof.console.output_folder import Owner, invoking_user
from ebpfprof.errors import OutputError
from tests.unit.console.output_child import spawn

pytestmark = pytest.mark.machine  # only root can give files away

USER = Owner(54321, 54322)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory of root's that everyone can reach."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def owner_of(path: Path) -> Owner:
    found = path.lstat()
    return Owner(found.st_uid, found.st_gid)


def set_sudo(monkeypatch: pytest.MonkeyPatch, uid: str | None, gid: str | None) -> None:
    for name, value in (("SUDO_UID", uid), ("SUDO_GID", gid)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("uid", "gid", "expected"),
    [
        ("1000", "1001", Owner(1000, 1001)),
        ("1000", "0", Owner(1000, 0)),
        ("4294967294", "4294967294", Owner(4294967294, 4294967294)),
        (None, None, None),
        ("1000", None, None),
        (None, "1000", None),
        ("0", "0", None),
        ("0", "1000", None),
        ("", "", None),
        ("-1", "1000", None),
        ("1000", "-1", None),
        ("4294967295", "1000", None),
        ("1000", "4294967295", None),
        ("99999999999", "1000", None),
        ("1" * 5000, "1000", None),
        ("1000 ", "1000", None),
        ("1000\n", "1000", None),
        ("+1000", "1000", None),
        ("1_000", "1000", None),
        ("0x3e8", "1000", None),
        ("١٠٠٠", "1000", None),  # digits to int(), but not to sudo
        ("root", "root", None),
    ],
)
def test_variables_of_sudo_are_used_only_if_valid(
    monkeypatch: pytest.MonkeyPatch, uid: str | None, gid: str | None, expected: Owner | None
) -> None:
    set_sudo(monkeypatch, uid, gid)
    assert invoking_user() == expected


def test_variables_of_sudo_are_ignored_without_root() -> None:
    child = spawn(
        "print(os.getuid(), invoking_user())",
        user=USER.uid,
        environment={"SUDO_UID": "1000", "SUDO_GID": "1000"},
    )
    output, error = child.communicate()
    assert output == f"{USER.uid} None\n".encode(), error


def test_set_user_id_root_ignores_variables_of_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    set_sudo(monkeypatch, "1000", "1000")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert invoking_user() is None


def test_a_run_under_sudo_gives_the_file_to_the_user(folder: Path) -> None:
    os.chown(folder, USER.uid, USER.gid)
    child = spawn(
        "OutputFile.prepare(Path(sys.argv[1]), owner=invoking_user()).commit(b'profile')",
        folder / "x",
        environment={"SUDO_UID": str(USER.uid), "SUDO_GID": str(USER.gid)},
    )
    assert child.communicate() == (b"", b"")
    assert owner_of(folder / "x") == USER
    assert (folder / "x").stat().st_mode & 0o777 == 0o600
    reader = spawn("print(Path(sys.argv[1]).read_text())", folder / "x", user=USER.uid)
    assert reader.communicate() == (b"profile\n", b"")


@pytest.mark.parametrize(
    ("owner", "mode", "given"),
    [
        (USER, 0o700, True),
        (USER, 0o755, True),
        (USER, 0o300, True),
        # His own permissions count, even if others have more.
        (USER, 0o577, False),
        (USER, 0o677, False),
        (Owner(0, USER.gid), 0o770, True),
        (Owner(0, USER.gid), 0o757, False),
        (Owner(0, 0), 0o1777, True),
        (Owner(0, 0), 0o773, True),
        (Owner(0, 0), 0o772, False),
        (Owner(0, 0), 0o775, False),
        (Owner(0, 0), 0o755, False),
        (Owner(12345, 12345), 0o755, False),
        (Owner(12345, 12345), 0o777, True),
    ],
)
def test_the_user_gets_the_file_only_in_writable_folders(
    folder: Path, owner: Owner, mode: int, given: bool
) -> None:
    os.chown(folder, owner.uid, owner.gid)
    folder.chmod(mode)
    OutputFile.prepare(folder / "x", owner=USER).commit(b"profile")
    assert owner_of(folder / "x") == (USER if given else Owner(0, 0))
    # The kernel agrees.
    maker = spawn(
        "os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[3]));"
        "Path(sys.argv[1]).touch()",
        folder / "y",
        str(USER.gid),
        str(USER.uid),
    )
    _, error = maker.communicate()
    assert (maker.returncode == 0) is given, error


def test_supplementary_groups_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(folder, 0, 777)
    folder.chmod(0o770)
    person = pwd.getpwuid(0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {USER.uid: person}[uid])
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 777])
    OutputFile.prepare(folder / "x", owner=USER).commit(b"profile")
    assert owner_of(folder / "x") == USER


def test_hard_links_of_a_replaced_file_keep_their_owner(folder: Path) -> None:
    os.chown(folder, USER.uid, USER.gid)
    (folder / "shadow").write_text("secret")
    (folder / "x").hardlink_to(folder / "shadow")
    OutputFile.prepare(folder / "x", owner=USER, if_taken="replace").commit(b"profile")
    assert owner_of(folder / "shadow") == Owner(0, 0)
    assert owner_of(folder / "x") == USER


def test_a_file_system_without_owners_still_gets_the_profile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, uid: int, gid: int) -> None:
        raise PermissionError

    os.chown(folder, USER.uid, USER.gid)
    monkeypatch.setattr(os, "fchown", refuse)
    OutputFile.prepare(folder / "x", owner=USER).commit(b"profile")
    assert (folder / "x").read_bytes() == b"profile"


def test_a_rescued_profile_belongs_to_the_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "gone").mkdir()
    (folder / "temp").mkdir()
    (folder / "temp").chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temp"))
    monkeypatch.chdir(folder / "gone")
    file = OutputFile.prepare(Path("x"), owner=USER)
    (folder / "gone").rmdir()
    with pytest.raises(OutputError, match="was saved as"):
        file.commit(b"profile")
    (private,) = (folder / "temp").iterdir()
    (saved,) = private.iterdir()
    assert owner_of(private) == owner_of(saved) == USER
    assert private.stat().st_mode & 0o777 == 0o700
    assert saved.read_bytes() == b"profile"


@pytest.mark.parametrize(
    ("swap", "complaint"),
    [
        (lambda path: os.chown(path, 12345, 12345), "Another process meddles"),
        (lambda path: path.chmod(0o777), "Another process meddles"),
        (lambda path: (path.rmdir(), path.symlink_to("roots_own")), "Not a directory"),
    ],
)
def test_a_private_folder_with_another_owner_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, swap: Callable[[Path], object], complaint: str
) -> None:
    real = os.mkdir

    def taken(path: str, mode: int, *, dir_fd: int) -> None:
        real(path, mode, dir_fd=dir_fd)
        swap(folder / path)

    (folder / "roots_own").mkdir(mode=0o700)
    (folder / "gone").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(folder / "gone")
    file = OutputFile.prepare(Path("x"), owner=USER)
    (folder / "gone").rmdir()
    monkeypatch.setattr(os, "mkdir", taken)
    with pytest.raises(OutputError, match=f"is lost: .*{complaint}"):
        file.commit(b"profile")
    assert list((folder / "roots_own").iterdir()) == []
