"""The kernel's perf events and BPF links, as far as probes need them, by system call.

BCC's own attach falls back to tracefs, where a probe outlives a killed profiler, and has no
attach cookies. A perf event of our own ends with its file descriptor, whatever happens.
"""

import ctypes
import errno
import os
from pathlib import Path

from ebpfprof.errors import AttachFailed, KernelUnsupported, PermissionDenied
from ebpfprof.privileges import way_out

# arch/x86/entry/syscalls/syscall_64.tbl
_SYS_PERF_EVENT_OPEN = 298
_SYS_BPF = 321

# include/uapi/linux/bpf.h
_BPF_MAP_CREATE = 0
_BPF_LINK_CREATE = 28
_BPF_MAP_TYPE_ARRAY = 2
_BPF_PERF_EVENT = 41

# include/uapi/linux/perf_event.h
_PERF_FLAG_FD_CLOEXEC = 1 << 3

_UPROBE_PMU = Path("/sys/bus/event_source/devices/uprobe/type")

_NOT_ALLOWED = (errno.EPERM, errno.EACCES)

_libc = ctypes.CDLL(None, use_errno=True)


class _PerfEventAttr(ctypes.Structure):
    """struct perf_event_attr up to config2 (PERF_ATTR_SIZE_VER1), include/uapi/linux."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
    ]


class _MapCreate(ctypes.Structure):
    """The beginning of union bpf_attr for BPF_MAP_CREATE."""

    _fields_ = [
        ("map_type", ctypes.c_uint32),
        ("key_bytes", ctypes.c_uint32),
        ("value_bytes", ctypes.c_uint32),
        ("max_entries", ctypes.c_uint32),
    ]


class _LinkCreate(ctypes.Structure):
    """union bpf_attr for BPF_LINK_CREATE on a perf event (Linux 5.15 on)."""

    _fields_ = [
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("bpf_cookie", ctypes.c_uint64),
    ]


def require_bpf() -> None:
    """Raise KernelUnsupported unless the kernel has BPF, PermissionDenied if it is not for us."""
    attr = _MapCreate(map_type=_BPF_MAP_TYPE_ARRAY, key_bytes=4, value_bytes=4, max_entries=1)
    fd = _libc.syscall(_SYS_BPF, _BPF_MAP_CREATE, ctypes.byref(attr), ctypes.sizeof(attr))
    if fd >= 0:
        os.close(fd)
        return
    code = ctypes.get_errno()
    if code in _NOT_ALLOWED:
        raise PermissionDenied(
            f"The kernel does not let this user use BPF ({os.strerror(code)}). {way_out()}"
        )
    raise KernelUnsupported(
        f"This kernel ({os.uname().release}) offers no BPF: {os.strerror(code)}. Linux 5.15 or "
        "newer with CONFIG_BPF_SYSCALL is needed."
    )


def open_uprobe(path: str, offset: int, pid: int) -> int:
    """Open a uprobe at `offset` (bytes into the file `path`) in process `pid`; returns its fd.

    The event fires in every thread of that process and in no other process. It does nothing
    until a program is linked to it. Raises KernelUnsupported where the kernel has no uprobe
    events (before Linux 4.17), PermissionDenied, or AttachFailed with the errno named.
    """
    try:
        pmu_type = int(_UPROBE_PMU.read_text())
    except (OSError, ValueError) as error:
        raise KernelUnsupported(
            f"This kernel offers no uprobes as perf events ({_UPROBE_PMU} can't be read: {error}). "
            "Linux 4.17 or newer with CONFIG_UPROBE_EVENTS is needed, and /sys must be mounted."
        ) from error
    name = ctypes.create_string_buffer(os.fsencode(path))
    attr = _PerfEventAttr(
        type=pmu_type,
        size=ctypes.sizeof(_PerfEventAttr),
        sample_period=1,
        config1=ctypes.addressof(name),
        config2=offset,
    )
    fd = _libc.syscall(
        _SYS_PERF_EVENT_OPEN, ctypes.byref(attr), pid, -1, -1, ctypes.c_ulong(_PERF_FLAG_FD_CLOEXEC)
    )
    if fd < 0:
        raise _refused(f"a probe at offset {offset:#x} in process {pid}")
    return int(fd)


def link_program(prog_fd: int, perf_fd: int, cookie: int) -> int:
    """Run the BPF program on every hit of the perf event, with an attach cookie; returns an fd.

    Both file descriptors must stay open as long as the program is to run. Raises
    KernelUnsupported before Linux 5.15, PermissionDenied or AttachFailed.
    """
    attr = _LinkCreate(
        prog_fd=prog_fd, target_fd=perf_fd, attach_type=_BPF_PERF_EVENT, bpf_cookie=cookie
    )
    fd = _libc.syscall(_SYS_BPF, _BPF_LINK_CREATE, ctypes.byref(attr), ctypes.sizeof(attr))
    if fd < 0:
        if ctypes.get_errno() == errno.EINVAL:
            raise KernelUnsupported(
                f"This kernel ({os.uname().release}) can't link BPF programs to uprobes with "
                "attach cookies: Linux 5.15 or newer is needed."
            )
        raise _refused("to link a BPF program to its probe")
    return int(fd)


def _refused(what: str) -> AttachFailed | PermissionDenied:
    code = ctypes.get_errno()
    text = f"The kernel refused {what}: {os.strerror(code)} (errno {code})."
    if code in _NOT_ALLOWED:
        return PermissionDenied(f"{text} {way_out()}")
    if code == errno.EMFILE:
        return AttachFailed(f"{text} Allow more open files (`ulimit -n`), or record fewer at once.")
    return AttachFailed(f"{text} `dmesg` may tell more.")
