"""Allows one agent on a machine: a lock in the folder for run-time files."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ebpfprof.console.text import printable
from ebpfprof.errors import EbpfprofError

_FOLDER: Final = "/run/ebpfprof"
_NAME: Final = "agent.lock"


@contextmanager
def only_agent() -> Iterator[None]:
    """Hold the lock while the block runs; the kernel releases it if the agent is killed.

    It is in $RUNTIME_DIRECTORY (systemd's RuntimeDirectory=), else in /run/ebpfprof. Raises
    EbpfprofError.
    """
    folder = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0] or _FOLDER
    path = os.path.join(folder, _NAME)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EbpfprofError(
            f"The agent can't create its lock {printable(path)}: {error.strerror}. Run it as root, "
            "or set RUNTIME_DIRECTORY to a folder of its user."
        ) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            holder = f", process {pid}," if pid.isdigit() else ""
            raise EbpfprofError(
                f"Another agent{holder} is running on this machine (it locks {printable(path)}). "
                "End it first, or reload its file with SIGHUP."
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
