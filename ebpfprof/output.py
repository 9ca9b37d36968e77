"""The output file: created before anything is recorded, complete or absent, never lost silently.

We run as root, perhaps in a directory that belongs to someone hostile. Hence:
- every step goes through one descriptor of the directory; a path is resolved once;
- we write only to a file that we created (a nameless one where the file system can do it,
  else under an unguessable name), never to one that was there: no symlink or hard link put
  in our way can turn a write or a change of owner towards another file;
- link() gives it its name, or, where something has that, rename() puts it in place: what has
  the name by then is replaced, not followed;
- the invoking user is given the file only in a directory where he could have made it himself.
"""

import errno
import os
import pwd
import re
import secrets
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from ebpfprof.errors import OutputError
from ebpfprof.signals import interruptible
from ebpfprof.text import printable

_STDOUT_FD = 1
_MODE = 0o600
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# What a file system or kernel without O_TMPFILE answers.
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class Owner:
    """The user and group that a file is given to."""

    uid: int
    gid: int


def invoking_user() -> Owner | None:
    """The user who typed sudo, or None if we are not root by sudo or its variables are odd."""
    if os.getuid() != 0 or os.geteuid() != 0:
        return None
    ids = [os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if not all(re.fullmatch(r"[0-9]{1,10}", value) for value in ids):
        return None
    uid, gid = (int(value) for value in ids)
    # The last id means "leave it as it is" to chown; root owns the file anyway.
    if uid == 0 or max(uid, gid) >= (1 << 32) - 1:
        return None
    return Owner(uid, gid)


def default_name(command: str, pid: int, kind: str, suffix: str = ".pb.gz") -> str:
    """COMMAND-PID.KIND.pb.gz; the command is the target's word and loses all that is unsafe."""
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", command).lstrip(".-")[:64]
    return f"{safe or 'process'}-{pid}.{kind}{suffix}"


class OutputFile:
    """Where one profile will be written: prepare(), then commit() or discard()."""

    def __init__(
        self, name: str, fd: int, directory: "_Directory | None", owner: Owner | None
    ) -> None:
        self._name = name
        self._fd = fd
        self._directory = directory
        self._owner = owner
        self._open = True

    @classmethod
    def prepare(
        cls, path: Path | Literal["-"], *, owner: Owner | None = None, is_text: bool = False
    ) -> Self:
        """Get everything ready so that writing can hardly fail later; "-" is stdout.

        The file appears under its name, with mode 0600 and belonging to `owner`, at commit().
        Raises OutputError if `path` cannot be written, is a directory, a symbolic link or
        anything but a regular file, or if stdout is a terminal, unless it `is_text`.
        """
        if path == "-":
            return cls("-", _stdout(is_text=is_text), None, owner)
        name = Path(path).name
        shown = printable(str(path))
        if name in ("", ".."):
            raise OutputError(f"{shown} is a directory: give the name of a file in it with -o.")
        try:
            directory = _Directory.open(Path(path).parent)
        except (OSError, ValueError) as error:
            raise OutputError(
                f"Cannot open the directory of {shown}: {_reason(error)}. "
                "Choose another place with -o."
            ) from error
        try:
            directory.check_replaceable(name, shown)
            fd = directory.create()
        except BaseException as error:
            directory.close()
            if not isinstance(error, OSError | ValueError):
                raise
            raise OutputError(
                f"Cannot write {shown}: {_reason(error)}. Choose another place with -o."
            ) from error
        return cls(str(path), fd, directory, owner)

    @property
    def name(self) -> str:
        """The path as it was asked for; "-" is stdout."""
        return self._name

    def commit(self, data: bytes) -> None:
        """Write `data`, make it durable, and put it in place.

        Raises OutputError if that fails; `data` is then saved in the current or the temporary
        directory under a new name, which the message gives.
        """
        if not self._open:
            raise ValueError("The output is already closed.")
        try:
            interruptible(
                lambda: _write_all(self._fd, data)
            )  # a reader of stdout may take its time
            if self._directory is not None:
                self._directory.publish(self._fd, Path(self._name).name, self._owner)
        except (OSError, OutputError) as error:
            self.discard()
            why = str(error)
            if isinstance(error, OSError):
                shown = "standard output" if self._directory is None else printable(self._name)
                why = f"Could not write {shown}: {_reason(error)}."
            raise OutputError(f"{why} {_rescue(data, self._owner)}") from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Leave nothing behind. Does nothing after commit(), or the second time."""
        if not self._open:
            return
        self._open = False
        with suppress(OSError):
            os.close(self._fd)
        if self._directory is not None:
            self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()


class _Directory:
    """A directory held open, and the one unfinished file that we made in it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._temporary: str | None = None

    @classmethod
    def open(cls, path: Path) -> "_Directory":
        """Open the directory `path`. Raises OSError."""
        return cls(os.open(path, _DIRECTORY))

    def check_replaceable(self, name: str, shown: str) -> None:
        """Raise OutputError unless `name` is free or a regular file."""
        try:
            mode = os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISLNK(mode):
            raise OutputError(
                f"{shown} is a symbolic link, which is not followed: remove it, or name the file "
                "it points to with -o."
            )
        if stat.S_ISDIR(mode):
            raise OutputError(f"{shown} is a directory: give the name of a file in it with -o.")
        if not stat.S_ISREG(mode):
            raise OutputError(
                f"{shown} is not a regular file: choose another with -o, or write to standard "
                "output with `-o -` and redirect that."
            )

    def create(self) -> int:
        """Create the unfinished file, nameless if possible; return a descriptor to write to."""
        try:
            fd = os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, _MODE, dir_fd=self._fd)
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
            return self.create_named()
        _undo_umask(fd)
        return fd

    def create_named(self) -> int:
        """Create the unfinished file under an unguessable name; return a descriptor."""
        name = _unguessable()
        fd = os.open(name, _NEW_FILE, _MODE, dir_fd=self._fd)
        self._temporary = name
        _undo_umask(fd)
        return fd

    def publish(self, fd: int, name: str, owner: Owner | None) -> None:
        """Give the file of `fd` its owner and `name`, durably. Raises OSError, OutputError."""
        self.give(fd, owner)
        os.fsync(fd)
        self.check_replaceable(name, printable(name))
        if self._temporary is not None or not self._link(fd, name):
            self._replace(fd, name)
        # In a directory of someone hostile the temporary name may have been swapped.
        if not os.path.samestat(
            os.fstat(fd), os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        ):
            raise OutputError(f"{printable(name)} was replaced by someone else meanwhile.")
        with suppress(OSError):  # not every file system can
            os.fsync(self._fd)

    def _link(self, fd: int, name: str) -> bool:
        """Give the nameless file `name` in one step; False if something else has it."""
        try:
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=self._fd, follow_symlinks=True)
        except FileExistsError:
            return False
        return True

    def _replace(self, fd: int, name: str) -> None:
        """Put the file in the place of what is called `name`, which takes a name before."""
        if self._temporary is None:
            temporary = _unguessable()
            if not self._link(fd, temporary):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._temporary = temporary
        os.rename(self._temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self._temporary = None

    def close(self) -> None:
        """Remove the unfinished file, if there is one, and let go of the directory."""
        if self._temporary is not None:
            with suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._fd)
            self._temporary = None
        os.close(self._fd)

    def make_private(self, name: str, owner: Owner | None) -> "_Directory":
        """Make the directory `name` in this one, for `owner` alone, and open it."""
        os.mkdir(name, 0o700, dir_fd=self._fd)
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._fd)
        made = os.fstat(fd)
        if made.st_uid != os.geteuid() or stat.S_IMODE(made.st_mode) & 0o077:
            os.close(fd)
            raise OutputError("Someone else meddles with the temporary directory.")
        self.give(fd, owner)
        return _Directory(fd)

    def remove_directory(self, name: str) -> None:
        """Remove the empty directory `name`, if it can be done."""
        with suppress(OSError):
            os.rmdir(name, dir_fd=self._fd)

    def give(self, fd: int, owner: Owner | None) -> None:
        """Make `owner` the owner of what we created here, if he could have created it himself."""
        if owner is not None and self._in_reach_of(owner):
            # Some file systems know no owners: the profile matters more.
            with suppress(OSError):
                os.fchown(fd, owner.uid, owner.gid)

    def _in_reach_of(self, owner: Owner) -> bool:
        # By the mode bits: else sudo rights to profile would be rights to own, say, a file in
        # /etc/profile.d.
        found = os.fstat(self._fd)
        if found.st_uid == owner.uid:
            wanted = stat.S_IWUSR | stat.S_IXUSR
        elif found.st_gid in _groups(owner):
            wanted = stat.S_IWGRP | stat.S_IXGRP
        else:
            wanted = stat.S_IWOTH | stat.S_IXOTH
        return found.st_mode & wanted == wanted


def _undo_umask(fd: int) -> None:
    with suppress(OSError):  # not every file system has modes
        os.fchmod(fd, _MODE)


def _stdout(*, is_text: bool) -> int:
    if os.isatty(_STDOUT_FD) and not is_text:
        raise OutputError(
            "A profile is binary and not for a terminal: redirect standard output, or name a "
            "file with -o."
        )
    try:
        return os.dup(_STDOUT_FD)
    except OSError as error:
        raise OutputError(
            f"Standard output cannot be used: {_reason(error)}. Name a file with -o."
        ) from error


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _rescue(data: bytes, owner: Owner | None) -> str:
    """Save `data` elsewhere; return the sentence that says where, or that it is lost."""
    failures = []
    for place in (_current_directory, _private_directory):
        try:
            return f"The profile was saved as {printable(place(data, owner))} instead."
        except (OSError, OutputError) as error:
            failures.append(_reason(error))
    return (
        "The profile is lost: neither the current directory nor the temporary one "
        f"could take it ({'; '.join(failures)})."
    )


def _current_directory(data: bytes, owner: Owner | None) -> str:
    path = os.getcwd()
    return _save(_Directory.open(Path()), path, data, owner)


def _private_directory(data: bytes, owner: Owner | None) -> str:
    """Save `data` in a new directory below the temporary one that only `owner` can enter."""
    path = tempfile.gettempdir()
    above = _Directory.open(Path(path))
    try:
        name = _unguessable().lstrip(".")
        directory = above.make_private(name, owner)
        try:
            return _save(directory, f"{path}/{name}", data, owner)
        except BaseException:
            above.remove_directory(name)
            raise
    finally:
        above.close()


def _save(directory: _Directory, path: str, data: bytes, owner: Owner | None) -> str:
    name = f"ebpfprof-{secrets.token_hex(4)}.pb.gz"
    try:
        # The plainest way: a nameless file may be what has just failed.
        fd = directory.create_named()
        try:
            _write_all(fd, data)
            directory.publish(fd, name, owner)
        finally:
            os.close(fd)
    finally:
        directory.close()
    return f"{path}/{name}"


def _groups(owner: Owner) -> set[int]:
    try:
        return set(os.getgrouplist(pwd.getpwuid(owner.uid).pw_name, owner.gid))
    except (KeyError, OSError):
        return {owner.gid}


def _unguessable() -> str:
    return f".ebpfprof-{secrets.token_hex(16)}"


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error).rstrip(".")
