"""Probes as BPF links of their own (Linux 6.6 on), which need no CAP_SYS_ADMIN.

Perf events for uprobes need it since CVE-2025-38466 was fixed (Linux 6.16, and 5.10.240, 5.15.189,
6.1.146, 6.6.99, 6.12.39, 6.15.7); before, CAP_PERFMON was enough for them, too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from functools import cache

from ebpfprof.kernel import syscalls
from ebpfprof.kernel.refusals import attach_refused
from ebpfprof.kernel.syscalls import TRACE_UPROBE_MULTI
from ebpfprof.system.first_thread import reading_pid

_NO_PID = 0xFFFF_FFFF


def can_reach(pid: int) -> bool:
    """Whether links can have probes in process `pid`.

    Once its first thread has ended they take no hit: the kernel compares the memory of each thread
    that passes with that of the first (uprobe_multi_link_filter, kernel/trace/bpf_trace.c, Linux
    6.6 to 6.18).
    """
    return reading_pid(pid) == pid


@cache
def is_offered() -> bool:
    """Whether the kernel has such links, and they fire in every thread of a process.

    Those of Linux 6.6 to 6.9 fired in one thread only, until that was fixed (in 6.10 and the stable
    releases of the time): a kernel with the fix refuses a pid of -1, one without looks for it
    (bpf_uprobe_multi_link_attach, kernel/trace/bpf_trace.c).
    """
    try:
        program = syscalls.load_noop("kprobe", TRACE_UPROBE_MULTI)
    except OSError:
        return False
    try:
        return [_refusal_of_root_folder(program, pid) for pid in (0, _NO_PID)] == [
            errno.EBADF,  # it is no regular file
            errno.EINVAL,
        ]
    finally:
        os.close(program)


def link(prog_fd: int, path: str, offsets: Sequence[tuple[int, int]], pid: int) -> int:
    """Run the BPF program when process `pid` passes any of the `offsets` into the file `path`.

    An offset in bytes stands with the attach cookie that the program reads there. Returns a file
    descriptor: closing it removes the probes. The program must have been loaded for
    TRACE_UPROBE_MULTI. Raises PermissionDenied or AttachFailed with the errno named, and leaves no
    probe then.
    """
    try:
        return syscalls.link_uprobes(prog_fd, path, offsets, pid)
    except OSError as error:
        named = ", ".join(f"{offset:#x}" for offset, _ in offsets)
        raise attach_refused(f"probes in process {pid} (offsets {named})", error) from error


def _refusal_of_root_folder(program: int, pid: int) -> int:
    """The errno, 0 if the kernel makes the link."""
    try:
        os.close(syscalls.link_uprobes(program, "/", [(0, 0)], pid))
    except OSError as error:
        return error.errno or 0
    return 0
