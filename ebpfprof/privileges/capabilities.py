"""The capabilities of this thread: which are in force, and how to drop others for good.

Linux keeps them per thread; a thread inherits those of the thread that started it. So capabilities
are dropped before there are other threads, or in each thread.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

# include/uapi/linux/capability.h
NUMBERS = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,
}
_VERSION_3 = 0x2008_0522

# include/uapi/linux/prctl.h
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAP_SETPCAP = 8

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    """struct __user_cap_header_struct; pid 0 is the calling thread."""

    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Data(ctypes.Structure):
    """struct __user_cap_data_struct: 32 bits of each set. Two of them, the low bits first."""

    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def effective() -> frozenset[int]:
    """Numbers of the capabilities in force. Raises OSError if /proc can't be read."""
    return _of_status("CapEff")


def give_up(keep: Collection[str]) -> None:
    """Keep at most the capabilities of these names, for good, in this thread and those it starts.

    Programs that it executes get none of them, unless they are passed_on(); as root they get those
    that were kept. Set-user-id bits have no effect on them. Raises OSError.
    """
    kept = sum(1 << NUMBERS[name] for name in keep)
    if os.geteuid() == 0 or _CAP_SETPCAP in effective():
        # Programs that root executes get the whole bounding set.
        for number in range(64):
            if kept >> number & 1 or _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) != 1:
                continue
            if _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) and _CAP_SETPCAP in effective():
                raise _error()
    if _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0):
        raise _error()
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise _error()
    header, both = _Header(_VERSION_3, 0), (_Data * 2)()
    if _libc.capget(ctypes.byref(header), both):
        raise _error()
    for shift, sets in zip((0, 32), both, strict=True):
        mask = kept >> shift & 0xFFFF_FFFF
        sets.permitted &= mask
        sets.effective &= mask
        sets.inheritable = 0
    if _libc.capset(ctypes.byref(header), both):
        raise _error()


@contextmanager
def passed_on() -> Iterator[None]:
    """Programs that this thread executes while the block runs get its capabilities.

    Those of root get them anyway. Raises OSError.
    """
    if os.geteuid() == 0:
        yield
        return
    header, before, more = _Header(_VERSION_3, 0), (_Data * 2)(), (_Data * 2)()
    for sets in (before, more):
        if _libc.capget(ctypes.byref(header), sets):
            raise _error()
    for caps in more:
        caps.inheritable = caps.permitted
    if _libc.capset(ctypes.byref(header), more):
        raise _error()
    try:
        for number in effective():
            if _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0):
                raise _error()
        yield
    finally:
        # What is not inheritable is not ambient either.
        if _libc.capset(ctypes.byref(header), before):
            raise _error()


@contextmanager
def set_aside(name: str) -> Iterator[None]:
    """Drop a capability of this thread while the block runs. Raises OSError."""
    header, before, less = _Header(_VERSION_3, 0), (_Data * 2)(), (_Data * 2)()
    for sets in (before, less):
        if _libc.capget(ctypes.byref(header), sets):
            raise _error()
    half, bit = divmod(NUMBERS[name], 32)
    less[half].effective &= ~(1 << bit)
    if _libc.capset(ctypes.byref(header), less):
        raise _error()
    try:
        yield
    finally:
        if _libc.capset(ctypes.byref(header), before):
            raise _error()


def _of_status(name: str) -> frozenset[int]:
    # /proc/self would be the first thread's.
    status = Path("/proc/thread-self/status").read_text()
    match = re.search(rf"^{name}:\s*([0-9a-f]+)$", status, re.MULTILINE)
    mask = int(match[1], 16) if match else 0
    return frozenset(bit for bit in range(64) if mask >> bit & 1)


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
