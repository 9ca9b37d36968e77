"""Compiled programs, kept until the machine boots again: the second recording begins sooner.

Compiling takes a second of processor time, which on a machine in trouble is a second too much.
Only root has such a cache, in a folder of /run that nobody else can enter: what lies in it goes
into the kernel. Whatever is odd there is passed over, and compiled again.
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
"""The oldest go: each has options of its own, and takes less than 0.1 MB."""
_MAX_BYTES: Final = 8 << 20
_OPEN: Final = os.O_NOFOLLOW | os.O_CLOEXEC


def key_of(parts: Sequence[str]) -> str:
    """The name of what was made from these: all that it depends on."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def find(key: str) -> dict[str, Any] | None:
    """What was kept by that name, if it is there."""
    # What can't be read is compiled again, which tells what is wrong with the machine, if it is.
    with contextlib.suppress(OSError, ValueError), _folder() as folder:
        fd = os.open(key, os.O_RDONLY | os.O_NONBLOCK | _OPEN, dir_fd=folder)
        with open(fd, "rb") as file:
            if _is_ours(os.fstat(fd), stat.S_ISREG):
                kept = json.loads(file.read(_MAX_BYTES))
                return kept if isinstance(kept, dict) else None
    return None


def keep(key: str, made: dict[str, Any]) -> None:
    """Keep it for the next one who asks, if that is possible."""
    # Full, read-only, not root: then the next one compiles, too.
    with contextlib.suppress(OSError), _folder() as folder:
        unfinished = secrets.token_hex(16)
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=folder)
        try:
            with open(fd, "wb") as file:
                file.write(json.dumps(made).encode())
            os.rename(unfinished, key, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(unfinished, dir_fd=folder)
            raise
        _forget_the_oldest(folder)


@contextlib.contextmanager
def _folder() -> Iterator[int]:
    """The folder, open, made if need be. Raises OSError if it is not root's alone, or we are not.

    /run belongs to root, so nobody else can have put something in its place.
    """
    if os.getuid() or os.geteuid():
        raise PermissionError("only root has a cache")
    with contextlib.suppress(FileExistsError):
        FOLDER.mkdir(0o700)
    fd = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
    try:
        if not _is_ours(os.fstat(fd), stat.S_ISDIR):
            raise PermissionError(f"{FOLDER} is open to others")
        yield fd
    finally:
        os.close(fd)


def _is_ours(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    return is_kind(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o077


def _forget_the_oldest(folder: int) -> None:
    """Of too many files; some may be what a process left that was killed while it wrote."""
    ages = {name: os.stat(name, dir_fd=folder).st_mtime_ns for name in os.listdir(folder)}
    for name in sorted(ages, key=ages.__getitem__)[:-MOST_PROGRAMS]:
        os.unlink(name, dir_fd=folder)
