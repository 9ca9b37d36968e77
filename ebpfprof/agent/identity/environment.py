"""The environment that a process was started with; the process may have forged it."""

from __future__ import annotations

from typing import Final

from ebpfprof.system.first_thread import reading_pid

_MAX_BYTES: Final = 256 << 10
_MAX_VALUE: Final = 4096


def environment(pid: int) -> dict[str, str]:
    """The variables of /proc/PID/environ, at most 256 KiB of them; {} if it can't be read.

    If a name occurs twice, the first one counts, as in Go (syscall.copyenv) and C.
    """
    try:
        with open(f"/proc/{reading_pid(pid)}/environ", "rb") as file:
            return variables(file.read(_MAX_BYTES))
    except OSError:
        return {}


def variables(data: bytes) -> dict[str, str]:
    """The variables in the bytes of such a file; values are cut to 4 KiB."""
    result: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name:
            key = name[:_MAX_VALUE].decode("utf-8", "backslashreplace")
            result.setdefault(key, value[:_MAX_VALUE].decode("utf-8", "backslashreplace"))
    return result
