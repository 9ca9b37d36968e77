"""Compiled programs, kept until the machine boots again, so that later recordings start earlier.

Compiling takes a second of CPU time, which is too much on a machine in trouble. Offsets of fields
of the kernel's structs (kernel.btf) are kept, too. Only root has a cache, in a folder of /run that
no other user can enter: its contents are loaded into the kernel. Files that are not as expected are
ignored and replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path("/run/ebpfprof")
MOST_PROGRAMS: Final = 32
"""Then the oldest are deleted. Each is for other options, and takes less than 0.1 MB."""
_MAX_BYTES: Final = 8 << 20
_OPEN: Final = os.O_NOFOLLOW | os.O_CLOEXEC


def key_of(parts: Sequence[str]) -> str:
    """The name of a result that depends on these `parts` and nothing else."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def find(key: str) -> dict[str, Any] | None:
    """What was kept under that name, None without it."""
    # Errors are ignored: the program is compiled again, and if the machine is broken, that says so.
    with contextlib.suppress(OSError, ValueError), _folder() as folder:
        fd = os.open(key, os.O_RDONLY | os.O_NONBLOCK | _OPEN, dir_fd=folder)
        with open(fd, "rb") as file:
            if _is_ours(os.fstat(fd), stat.S_ISREG):
                kept = json.loads(file.read(_MAX_BYTES))
                return kept if isinstance(kept, dict) else None
    return None


def keep(key: str, made: dict[str, Any]) -> None:
    """Keep it for later calls of find(), if that is possible."""
    # If the file system is full or read-only, or we are not root, the next recording compiles, too.
    with contextlib.suppress(OSError), _folder() as folder:
        unfinished = secrets.token_hex(16)
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=folder)
        try:
            with open(fd, "wb") as file:
                file.write(json.dumps(made).encode())
            os.rename(unfinished, key, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:  # Ctrl-C too: no unfinished file may stay
            os.unlink(unfinished, dir_fd=folder)
            raise
        _delete_the_oldest(folder)


@contextlib.contextmanager
def _folder() -> Iterator[int]:
    """The folder, open, made if need be. Raises OSError unless we are root, and it is root's alone.

    /run belongs to root, so no other user can have put another folder in its place.
    """
    if os.getuid() or os.geteuid():
        raise PermissionError("only root has a cache")
    with contextlib.suppress(FileExistsError):  # it is checked below
        FOLDER.mkdir(0o700)
    fd = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
    try:
        if not _is_ours(os.fstat(fd), stat.S_ISDIR):
            raise PermissionError(f"{FOLDER} is open to others")
        yield fd
    finally:
        os.close(fd)


def _is_ours(status: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    return is_kind(status.st_mode) and status.st_uid == 0 and not status.st_mode & 0o077


def _delete_the_oldest(folder: int) -> None:
    """Delete the oldest of too many files; a process that was killed may have left some."""
    ages = {name: os.stat(name, dir_fd=folder).st_mtime_ns for name in os.listdir(folder)}
    for name in sorted(ages, key=ages.__getitem__)[:-MOST_PROGRAMS]:
        os.unlink(name, dir_fd=folder)
