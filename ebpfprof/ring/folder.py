"""The folder of the ring, held open: one folder for each hour, one file for each profile.

    2026-11-25T03Z/0312-07.250-shop-4242.block.pb.gz    minute, second, service and pid

Times in names are UTC. Root writes here and trusts nothing that others could have put here: the
folder belongs to us and only we can write to it, no link is followed, and every step goes through
descriptors. A file appears under its name when it is complete and durable.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from ebpfprof.console.output_folder import OutputFolder
from ebpfprof.console.text import printable
from ebpfprof.errors import InvalidProfile, PermissionDenied, RingError

DEFAULT_FOLDER: Final = Path("/var/lib/ebpfprof")
INDEX: Final = "index.sqlite"
MAX_FILE: Final = 64 << 20
"""Bytes of the largest file that is written and read."""
BLOCK: Final = 4096
"""A file takes a multiple of this many bytes in most file systems."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HOUR: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\dZ")
_NAME: Final = re.compile(
    r"\d{4}-\d\d\.\d{3}-.{1,120}-\d{1,10}(-\d{1,4})?\.[a-z0-9_-]{1,32}\.pb\.gz"
)
_UNFINISHED: Final = ".ebpfprof-"
_OF_INDEX: Final = (INDEX, f"{INDEX}-wal", f"{INDEX}-shm", f"{INDEX}-journal")
_MOST_OF_A_NAME: Final = 1000
_MAX_SERVICE: Final = 64


class RingFolder:
    """A folder of recorded profiles. Paths are relative to it, HOUR/NAME."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self.path = path

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> Self:
        """Open the folder; `create` makes it if it is missing.

        Raises RingError if it can't be trusted or opened, PermissionDenied, FileNotFoundError.
        """
        shown = printable(str(path))
        try:
            if create:
                with suppress(FileExistsError):  # it is checked below
                    os.mkdir(path, 0o700)
            fd = os.open(path, _FOLDER)
        except FileNotFoundError:
            if not create:
                raise
            raise RingError(f"{shown} can't be created: create its parent folder first.") from None
        except PermissionError as error:
            raise PermissionDenied(
                f"{shown} can be read by root only, since it describes the programs of all users:"
                " use sudo."
            ) from error
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise RingError(
                    f"{shown} is a symbolic link or not a folder, and is not used: name the "
                    "folder itself."
                ) from error
            raise RingError(f"{shown} can't be opened: {_reason(error)}.") from error
        try:
            _require_trust(os.fstat(fd), shown)
        except BaseException:  # Ctrl-C too: nobody else closes it
            os.close(fd)
            raise
        return cls(fd, path)

    def close(self) -> None:
        """Close the folder, and give up the lock."""
        os.close(self._fd)

    def lock(self) -> None:
        """Be the only writer until the folder is closed. Raises RingError if there is one."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RingError(
                f"Another ebpfprof writes to {printable(str(self.path))}: stop it, or choose "
                "another folder."
            ) from error

    @property
    def index_path(self) -> str:
        """The path of the index in the folder that was opened, however it is called now."""
        return f"/proc/self/fd/{self._fd}/{INDEX}"

    def index_bytes(self) -> int:
        """What the index takes."""
        return sum(self._bytes_of(name) for name in _OF_INDEX)

    def require_index(self, *, create: bool = False) -> bool:
        """Whether there is an index; `create` makes an empty file for it.

        Raises RingError if what has its name is not a file of ours alone.
        """
        try:
            if create:
                with suppress(FileExistsError):  # it is checked below
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    os.close(os.open(INDEX, flags, 0o600, dir_fd=self._fd))
            status = os.stat(INDEX, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        is_ours = status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or not is_ours:
            shown = printable(str(self.path / INDEX))
            raise RingError(f"{shown} is not a file that ebpfprof made: remove it.")
        return True

    def remove_index(self) -> None:
        """Remove the index. Raises OSError."""
        for name in _OF_INDEX:
            with suppress(FileNotFoundError):  # it is gone already
                os.unlink(name, dir_fd=self._fd)

    def write(self, path: str, data: bytes) -> tuple[str, int]:
        """Write a file, durably; its path, with a number if that is taken, and the bytes it takes.

        Raises OSError, OutputError. Then there is no file.
        """
        hour, _, name = path.partition("/")
        with suppress(FileExistsError):  # the hour has files already
            os.mkdir(hour, 0o700, dir_fd=self._fd)
            os.fsync(self._fd)
        folder = OutputFolder(os.open(hour, _FOLDER, dir_fd=self._fd))
        fd = -1
        try:
            fd = folder.create()
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            name = _published(folder, fd, name)
            return f"{hour}/{name}", taken(os.fstat(fd))
        finally:
            if fd >= 0:
                os.close(fd)
            folder.close()

    def read(self, path: str, most: int = MAX_FILE) -> bytes:
        """The first `most` bytes of a file. Raises OSError, InvalidProfile."""
        with self._hour(path) as (hour, name), open(os.open(name, _FILE, dir_fd=hour), "rb") as got:
            if not stat.S_ISREG(os.fstat(got.fileno()).st_mode):
                raise InvalidProfile("This is not a regular file.")
            return got.read(most)

    def remove(self, path: str) -> None:
        """Remove a file, and its hour if that is empty then. No error if it is gone.

        Raises OSError.
        """
        with suppress(FileNotFoundError):  # it is gone already
            with self._hour(path) as (hour, name):
                os.unlink(name, dir_fd=hour)
            with suppress(OSError):  # other files are in it
                os.rmdir(path.partition("/")[0], dir_fd=self._fd)

    def files(self) -> Iterator[tuple[str, int]]:
        """The paths of all files that are named as ours, and the bytes they take.

        Raises OSError if the folder can't be read.
        """
        for hour in sorted(name for name in os.listdir(self._fd) if _HOUR.fullmatch(name)):
            try:
                fd = os.open(hour, _FOLDER, dir_fd=self._fd)
            except OSError:
                continue  # pruned meanwhile, or no folder
            try:
                for name in sorted(filter(_NAME.fullmatch, os.listdir(fd))):
                    with suppress(OSError):  # pruned meanwhile
                        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            yield f"{hour}/{name}", taken(status)
            finally:
                os.close(fd)

    def remove_unfinished(self) -> None:
        """Remove what a writer that was killed left behind. Raises OSError."""
        for hour in filter(_HOUR.fullmatch, os.listdir(self._fd)):
            with suppress(OSError):  # pruned meanwhile; else the next start tries again
                fd = os.open(hour, _FOLDER, dir_fd=self._fd)
                try:
                    names = os.listdir(fd)
                    for name in names:
                        if name.startswith(_UNFINISHED):
                            os.unlink(name, dir_fd=fd)
                finally:
                    os.close(fd)
                if not names:
                    os.rmdir(hour, dir_fd=self._fd)

    def free_bytes(self) -> int:
        """What the file system has left for those without special rights. Raises OSError."""
        filesystem = os.fstatvfs(self._fd)
        return filesystem.f_bavail * filesystem.f_frsize

    @contextmanager
    def _hour(self, path: str) -> Iterator[tuple[int, str]]:
        """The descriptor of a file's hour, and its name in there. Raises OSError."""
        hour, _, name = path.partition("/")
        if not (_HOUR.fullmatch(hour) and _NAME.fullmatch(name)) or "/" in name:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        fd = os.open(hour, _FOLDER, dir_fd=self._fd)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _bytes_of(self, name: str) -> int:
        try:
            return taken(os.stat(name, dir_fd=self._fd, follow_symlinks=False))
        except FileNotFoundError:
            return 0


def path_of(start_ns: int, service: str, pid: int, kind: str) -> str:
    """HOUR/NAME for a profile that begins at that Unix time. A service may have any letters."""
    seconds, ns = divmod(start_ns, 1_000_000_000)
    at = time.gmtime(min(seconds, 253_402_300_799))  # years have four digits
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", service).lstrip(".-")[:_MAX_SERVICE] or "service"
    second = f"{time.strftime('%H%M-%S', at)}.{ns // 1_000_000:03}"
    return f"{time.strftime('%Y-%m-%dT%HZ', at)}/{second}-{safe}-{pid}.{kind}.pb.gz"


def taken(status: os.stat_result) -> int:
    """The bytes that a file takes in its file system."""
    return max(status.st_size, status.st_blocks * 512)


def _published(folder: OutputFolder, fd: int, name: str) -> str:
    """Give the file its name, or that with the next free number. Raises OSError, OutputError."""
    first, _, suffix = name.rpartition(".pb.gz")[0].rpartition(".")
    for number in range(1, _MOST_OF_A_NAME):
        tried = name if number == 1 else f"{first}-{number}.{suffix}.pb.gz"
        with suppress(FileExistsError):  # the next number may be free
            folder.publish(fd, tried, None, replaces=False)
            return tried
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _require_trust(status: os.stat_result, shown: str) -> None:
    """Raise RingError if others could have put something into the folder."""
    if status.st_uid not in (0, os.geteuid()):
        raise RingError(
            f"{shown} belongs to another user (uid {status.st_uid}) and is not used: choose a "
            "folder that belongs to root."
        )
    if status.st_mode & 0o022:
        raise RingError(f"Others can write to {shown}; it is not used: chmod go-w it.")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
