"""The limit of open files: a perf event's probe takes two, a process about fifty."""

from __future__ import annotations

import errno
import resource
from typing import Final

from ebpfprof.errors import TooManyFiles

_ENOUGH: Final = 1024
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)


def allow_many() -> None:
    """Raise the soft limit to the hard one, also for our child processes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def too_many(error: BaseException | None) -> TooManyFiles | None:
    """What to report if no more files could be opened, there or in what caused that error.

    None for any other error.
    """
    while error is not None and not isinstance(error, TooManyFiles):
        if isinstance(error, OSError) and error.errno in _OUT_OF_FILES:
            return TooManyFiles(_sentence(error.errno))
        error = error.__cause__ or error.__context__
    return error


def _sentence(code: int) -> str:
    if code == errno.ENFILE:
        return "This machine has no more open files (/proc/sys/fs/file-max). Raise that limit."
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = max(_ENOUGH, 4 * hard)
    return (
        f"The limit of {soft} open files (RLIMIT_NOFILE) is reached. Raise it with "
        f"`ulimit -n {enough}` as root, or LimitNOFILE={enough} in a systemd unit, or record fewer "
        "processes at once."
    )
