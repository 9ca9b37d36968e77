"""The folder of an output file, held open, and the steps that create the file in it.

ebpfprof runs as root, perhaps in a directory of a hostile user. Hence:
- every step goes through one descriptor of the directory; a path is resolved once;
- it writes only to a file that it created (a nameless one if the file system can do that, else
  under an unguessable name), never to an existing one: no symlink or hard link that another user
  makes can lead a write or a change of owner to another file;
- link() gives the file its name. A file that has the name by then stays; only if it is to be
  replaced, rename() puts ours in its place: links are replaced, not followed;
- the invoking user becomes the owner only in a directory where that user could have created the
  file.
"""

import errno
import os
import pwd
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ebpfprof.console.text import printable
from ebpfprof.errors import OutputError

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
    """The user who typed sudo; None if we are not root by sudo, or its variables are unusable."""
    if os.getuid() != 0 or os.geteuid() != 0:
        return None
    ids = [os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if not all(re.fullmatch(r"[0-9]{1,10}", value) for value in ids):
        return None
    uid, gid = (int(value) for value in ids)
    # For chown the last id means "leave it as it is"; root owns the file anyway.
    if uid == 0 or max(uid, gid) >= (1 << 32) - 1:
        return None
    return Owner(uid, gid)


class OutputFolder:
    """A directory held open, and the one unfinished file in it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._temporary: str | None = None

    @classmethod
    def open(cls, path: Path) -> "OutputFolder":
        """Open the directory `path`. Raises OSError."""
        return cls(os.open(path, _DIRECTORY))

    def check_free(self, name: str, shown: str, *, replaces: bool) -> None:
        """Raise OutputError unless `name` is free, or a regular file that is to be replaced."""
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
                "output with -o - and redirect that."
            )
        if not replaces:
            raise OutputError(
                f"{shown} is there already: choose another name with -o, or replace the file with "
                "--force."
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
        name = unguessable()
        fd = os.open(name, _NEW_FILE, _MODE, dir_fd=self._fd)
        self._temporary = name
        _undo_umask(fd)
        return fd

    def publish(self, fd: int, name: str, owner: Owner | None, *, replaces: bool) -> None:
        """Give the file of `fd` its owner and `name`, durably.

        Raises FileExistsError if something has the name, unless that is to be replaced; OSError,
        OutputError.
        """
        self.give(fd, owner)
        os.fsync(fd)
        if self._temporary is not None or not self._link(fd, name):
            if replaces:
                self._replace(fd, name)
            else:
                self._take(fd, name)
        # In a directory of a hostile user the temporary name may have been swapped.
        if not os.path.samestat(
            os.fstat(fd), os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        ):
            raise OutputError(f"{printable(name)} was replaced by another process meanwhile.")
        with suppress(OSError):  # not every file system can
            os.fsync(self._fd)

    def _take(self, fd: int, name: str) -> None:
        """Give the file a free name in a way that all file systems support.

        Raises FileExistsError.
        """
        os.close(os.open(name, _NEW_FILE, _MODE, dir_fd=self._fd))
        try:
            self._replace(fd, name)
        except BaseException:  # Ctrl-C too: no empty file may stay
            os.unlink(name, dir_fd=self._fd)
            raise

    def _link(self, fd: int, name: str) -> bool:
        """Give the nameless file `name` in one step; False if another file has it."""
        try:
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=self._fd, follow_symlinks=True)
        except FileExistsError:
            return False
        return True

    def _replace(self, fd: int, name: str) -> None:
        """Replace what is called `name` by the file, which needs a temporary name for that."""
        if self._temporary is None:
            temporary = unguessable()
            if not self._link(fd, temporary):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._temporary = temporary
        os.rename(self._temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self._temporary = None

    def close(self) -> None:
        """Remove the unfinished file, if there is one, and close the directory."""
        if self._temporary is not None:
            with suppress(OSError):  # another process may have removed it
                os.unlink(self._temporary, dir_fd=self._fd)
            self._temporary = None
        os.close(self._fd)

    def make_private(self, name: str, owner: Owner | None) -> "OutputFolder":
        """Make the directory `name` in this one, for `owner` alone, and open it."""
        os.mkdir(name, 0o700, dir_fd=self._fd)
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._fd)
        made = os.fstat(fd)
        if made.st_uid != os.geteuid() or stat.S_IMODE(made.st_mode) & 0o077:
            os.close(fd)
            raise OutputError("Another process meddles with the temporary directory.")
        self.give(fd, owner)
        return OutputFolder(fd)

    def remove_directory(self, name: str) -> None:
        """Remove the empty directory `name`, if it can be done."""
        with suppress(OSError):  # an empty directory does no harm
            os.rmdir(name, dir_fd=self._fd)

    def give(self, fd: int, owner: Owner | None) -> None:
        """Make `owner` the owner of a file of ours, if that user could have created it here."""
        if owner is not None and self._in_reach_of(owner):
            # Some file systems have no owners: the profile matters more.
            with suppress(OSError):
                os.fchown(fd, owner.uid, owner.gid)

    def _in_reach_of(self, owner: Owner) -> bool:
        # By the mode bits: otherwise the right to profile by sudo would be the right to own a file
        # in /etc/profile.d, for example.
        status = os.fstat(self._fd)
        if status.st_uid == owner.uid:
            wanted = stat.S_IWUSR | stat.S_IXUSR
        elif status.st_gid in groups_of(owner):
            wanted = stat.S_IWGRP | stat.S_IXGRP
        else:
            wanted = stat.S_IWOTH | stat.S_IXOTH
        return status.st_mode & wanted == wanted


def _undo_umask(fd: int) -> None:
    with suppress(OSError):  # not every file system has modes
        os.fchmod(fd, _MODE)


def groups_of(owner: Owner) -> set[int]:
    """The groups that the user is in; only the one that is known if no user has the id."""
    try:
        return set(os.getgrouplist(pwd.getpwuid(owner.uid).pw_name, owner.gid))
    except (KeyError, OSError):
        return {owner.gid}


def unguessable() -> str:
    """A name for an unfinished file, which no other process can take before."""
    return f".ebpfprof-{secrets.token_hex(16)}"
