"""How often the kernel ran a process's BPF programs, and for how long."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SYS_BPF: Final = 321
_BPF_PROG_GET_FD_BY_ID: Final = 13
_BPF_OBJ_GET_INFO_BY_FD: Final = 15
_BPF_ENABLE_STATS: Final = 32
_BPF_STATS_RUN_TIME: Final = 0
# struct bpf_prog_info up to its name (include/uapi/linux/bpf.h).
_NAME_OFFSET: Final = 64
_NAME_BYTES: Final = 16
_INFO_BYTES: Final = _NAME_OFFSET + _NAME_BYTES
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Runs:
    """Runs of BPF programs: how many, and nanoseconds altogether."""

    count: int
    time_ns: int

    def __sub__(self, earlier: Runs) -> Runs:
        return Runs(self.count - earlier.count, self.time_ns - earlier.time_ns)


@contextmanager
def counting_runs() -> Iterator[None]:
    """Have the kernel count while the block runs, for all programs; it costs each run two clocks.

    As sysctl kernel.bpf_stats_enabled, but nothing is left switched on if we are killed
    (bpf(2), BPF_ENABLE_STATS, Linux 5.8).
    """
    fd = _bpf(_BPF_ENABLE_STATS, struct.pack("<I", _BPF_STATS_RUN_TIME))
    try:
        yield
    finally:
        os.close(fd)


def runs_of(pid: int) -> Runs:
    """Of all programs that a process holds, since they were loaded (proc_pid_fdinfo)."""
    found = [_runs(fields) for fields in _programs(pid)]
    return Runs(sum(runs.count for runs in found), sum(runs.time_ns for runs in found))


def runs_by_program(pid: int) -> dict[str, Runs]:
    """The same, by the name of the program."""
    return {_name(int(fields["prog_id"])): _runs(fields) for fields in _programs(pid)}


def _programs(pid: int) -> Iterator[dict[str, str]]:
    """What fdinfo says of each file descriptor that is a program."""
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            text = path.read_text()
            fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
            if "run_cnt" in fields:
                yield fields


def _runs(fields: dict[str, str]) -> Runs:
    return Runs(int(fields["run_cnt"]), int(fields["run_time_ns"]))


def _name(program: int) -> str:
    """By the id of a program (struct bpf_prog_info; 15 characters of it are kept)."""
    fd = _bpf(_BPF_PROG_GET_FD_BY_ID, struct.pack("<III", program, 0, 0))
    try:
        info = ctypes.create_string_buffer(_INFO_BYTES)
        _bpf(_BPF_OBJ_GET_INFO_BY_FD, struct.pack("<IIQ", fd, _INFO_BYTES, ctypes.addressof(info)))
        return info.raw[_NAME_OFFSET : _NAME_OFFSET + _NAME_BYTES].split(b"\0")[0].decode()
    finally:
        os.close(fd)


def _bpf(command: int, attribute: bytes) -> int:
    """The system call. Raises OSError."""
    result = int(_libc.syscall(_SYS_BPF, command, attribute, len(attribute)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf({command}): {os.strerror(code)}")
    return result
