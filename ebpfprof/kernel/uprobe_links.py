"""Probes as BPF links of their own (Linux 6.6 on), which take no CAP_SYS_ADMIN.

Perf events for uprobes take it since CVE-2025-38466 was mended (Linux 6.16, and 5.10.240, 5.15.189,
6.1.146, 6.6.99, 6.12.39, 6.15.7); before, CAP_PERFMON was enough for them, too.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from functools import cache

from ebpfprof.kernel import perf_events

# include/uapi/linux/bpf.h
ATTACH_TYPE = 48
"""BPF_TRACE_UPROBE_MULTI: programs must be loaded for it."""
_BPF_LINK_CREATE = 28
_NO_PID = 0xFFFF_FFFF


class _LinkCreate(ctypes.Structure):
    """union bpf_attr for BPF_LINK_CREATE of a BPF_TRACE_UPROBE_MULTI program."""

    _pack_ = 4  # the kernel refuses bytes behind its last field that are not 0
    _fields_ = [
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("path", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("ref_ctr_offsets", ctypes.c_void_p),
        ("cookies", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
        ("uprobe_flags", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
    ]


@cache
def is_offered() -> bool:
    """Whether the kernel has such links, and they fire in every thread of a process.

    Those of Linux 6.6 to 6.9 fired in one thread only, until that was mended (in 6.10 and the
    stable releases of the time): what is mended refuses a pid of -1, what is not looks for it
    (bpf_uprobe_multi_link_attach, kernel/trace/bpf_trace.c).
    """
    try:
        program = perf_events.load_nothing("kprobe", ATTACH_TYPE)
    except OSError:
        return False
    try:
        return [_refusal_of_root_folder(program, pid) for pid in (0, _NO_PID)] == [
            errno.EBADF,  # it is no regular file
            errno.EINVAL,
        ]
    finally:
        os.close(program)


def link(prog_fd: int, path: str, places: Sequence[tuple[int, int]], pid: int) -> int:
    """Run the BPF program whenever process `pid` passes one of the places of the file `path`.

    Each is an offset in bytes and the attach cookie that the program reads there. Returns a file
    descriptor: the probes are out once it is closed. The program must have been loaded for
    ATTACH_TYPE. Raises PermissionDenied or AttachFailed with the errno named; none is in then.
    """
    fd = _link(prog_fd, path, places, pid)
    if fd < 0:
        offsets = ", ".join(f"{offset:#x}" for offset, _ in places)
        raise perf_events.refused(f"probes in process {pid} (offsets {offsets})")
    return fd


def _refusal_of_root_folder(program: int, pid: int) -> int:
    fd = _link(program, "/", [(0, 0)], pid)
    if fd >= 0:
        os.close(fd)
        return 0
    return ctypes.get_errno()


def _link(prog_fd: int, path: str, places: Sequence[tuple[int, int]], pid: int) -> int:
    """The system call; -1 if refused (the errno is ctypes')."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    numbers = ctypes.c_uint64 * len(places)
    offsets, cookies = (numbers(*column) for column in zip(*places, strict=True))
    attr = _LinkCreate(
        prog_fd=prog_fd,
        attach_type=ATTACH_TYPE,
        path=ctypes.addressof(name),
        offsets=ctypes.addressof(offsets),
        cookies=ctypes.addressof(cookies),
        count=len(places),
        pid=pid,
    )
    return perf_events.bpf(_BPF_LINK_CREATE, attr)
