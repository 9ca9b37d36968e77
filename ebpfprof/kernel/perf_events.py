"""The kernel's perf events and BPF links, as far as probes need them, by system call.

BCC's own attach falls back to tracefs, where a probe outlives a killed profiler, and has no
attach cookies. A perf event of our own ends with its file descriptor, whatever happens.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ebpfprof.errors import AttachFailed, KernelUnsupported, PermissionDenied
from ebpfprof.privileges.checks import may_put_perf_uprobes, way_out

# arch/x86/entry/syscalls/syscall_64.tbl
_SYS_PERF_EVENT_OPEN = 298
_SYS_BPF = 321

# include/uapi/linux/bpf.h
_BPF_MAP_CREATE = 0
_BPF_PROG_LOAD = 5
_BPF_PROG_TEST_RUN = 10
_BPF_LINK_CREATE = 28
_BPF_MAP_TYPE_ARRAY = 2
_BPF_PERF_EVENT = 41
_BPF_PROG_TYPES = {"kprobe": 2, "perf_event": 7, "raw_tracepoint": 17}
NOTHING = bytes.fromhex("b700000000000000 9500000000000000")
"""A BPF program that does nothing: r0 = 0; exit."""

# include/uapi/linux/perf_event.h
_PERF_FLAG_FD_CLOEXEC = 1 << 3
_PERF_EVENT_IOC_ENABLE = 0x2400
_PERF_EVENT_IOC_DISABLE = 0x2401
_PERF_TYPE_HARDWARE = 0
_PERF_TYPE_SOFTWARE = 1
_PERF_COUNT_HW_REF_CPU_CYCLES = 9
_PERF_COUNT_SW_CPU_CLOCK = 0

# The bits behind perf_event_attr.read_format.
_DISABLED = 1 << 0
_PINNED = 1 << 2
_EXCLUDE_IDLE = 1 << 7

# struct perf_event_mmap_page: capabilities, pmc_width, time_shift, time_mult from byte 40 on.
_CLOCK_AT = 40
_CLOCK = struct.Struct("=QHHI")
_CAP_USER_TIME = 1 << 3

_NS_PER_SECOND = 1_000_000_000

_UPROBE_PMU = Path("/sys/bus/event_source/devices/uprobe/type")

_NOT_ALLOWED = (errno.EPERM, errno.EACCES)

ProgramKind = Literal["kprobe", "perf_event", "raw_tracepoint"]
_NAME_BYTES = 15
_MAP_NAME_BYTES = 16
_LOG_BYTES = 1 << 24  # what the verifier says of a million instructions; touched as far as written

_libc = ctypes.CDLL(None, use_errno=True)


class CpuOffline(AttachFailed):
    """The processor is not online (any more); whoever watches processors catches this."""


class NoHardwareCounter(AttachFailed):
    """No usable counter of the processor's reference cycles; whoever samples takes the clock."""


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
        ("map_flags", ctypes.c_uint32),
        ("inner_map_fd", ctypes.c_uint32),
        ("numa_node", ctypes.c_uint32),
        ("map_name", ctypes.c_char * _MAP_NAME_BYTES),
    ]


class _ProgLoad(ctypes.Structure):
    """The beginning of union bpf_attr for BPF_PROG_LOAD."""

    _fields_ = [
        ("prog_type", ctypes.c_uint32),
        ("insn_count", ctypes.c_uint32),
        ("insns", ctypes.c_void_p),
        ("license", ctypes.c_void_p),
        ("log_level", ctypes.c_uint32),
        ("log_bytes", ctypes.c_uint32),
        ("log", ctypes.c_uint64),
        ("kernel_version", ctypes.c_uint32),
        ("prog_flags", ctypes.c_uint32),
        ("prog_name", ctypes.c_char * 16),
        ("prog_ifindex", ctypes.c_uint32),
        ("expected_attach_type", ctypes.c_uint32),
    ]


class _TestRun(ctypes.Structure):
    """union bpf_attr for BPF_PROG_TEST_RUN."""

    _pack_ = 4  # the kernel refuses bytes behind its last field that are not 0
    _fields_ = [
        ("prog_fd", ctypes.c_uint32),
        ("returned", ctypes.c_uint32),
        ("data_bytes", ctypes.c_uint32 * 2),
        ("data", ctypes.c_uint64 * 2),
        ("repeat", ctypes.c_uint32),
        ("duration_ns", ctypes.c_uint32),
        ("context_in_bytes", ctypes.c_uint32),
        ("context_out_bytes", ctypes.c_uint32),
        ("context_in", ctypes.c_void_p),
        ("context_out", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
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


def run_once(prog_fd: int, arguments: Sequence[int]) -> None:
    """Run a program for raw tracepoints on this thread, its context a struct of so many u64.

    Linux 5.10 has that. Raises KernelUnsupported.
    """
    context = (ctypes.c_uint64 * len(arguments))(*arguments)
    attr = _TestRun(
        prog_fd=prog_fd,
        context_in_bytes=ctypes.sizeof(context),
        context_in=ctypes.addressof(context),
    )
    if bpf(_BPF_PROG_TEST_RUN, attr) < 0:
        raise KernelUnsupported(
            f"The kernel does not run a BPF program by itself: {os.strerror(ctypes.get_errno())}."
        )


def require_bpf() -> None:
    """Raise KernelUnsupported unless the kernel has BPF, PermissionDenied if it is not for us."""
    fd = create_map(_BPF_MAP_TYPE_ARRAY, 4, 4, 1)
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
        type=pmu_type, sample_period=1, config1=ctypes.addressof(name), config2=offset
    )
    fd = _open(attr, pid, -1)
    if fd < 0:
        what = f"a probe at offset {offset:#x} in process {pid}"
        if ctypes.get_errno() == errno.EACCES and not may_put_perf_uprobes():
            what += ", for which it wants CAP_SYS_ADMIN (Linux 6.10 and newer do without)"
        raise refused(what)
    return fd


def may_open_events() -> bool:
    """Whether this thread may have any perf event at all: tried on itself.

    Debian and Ubuntu let nobody without CAP_SYS_ADMIN where perf_event_paranoid is 3 or more.
    """
    fd = _open_own_clock()
    if fd < 0:
        return ctypes.get_errno() not in _NOT_ALLOWED
    os.close(fd)
    return True


def open_cpu_sampler(cpu: int, hz: int, *, hardware: bool) -> int:
    """Open an event that fires `hz` times per second of work of the processor `cpu`; an fd.

    It watches whatever runs there, kernel and user, but not the idle task; it is disabled at
    first, and does nothing until a program is linked to it. The period is fixed, so that each
    sample stands for the same span of time. Without `hardware` a timer counts nanoseconds
    (cpu-clock). With it, a counter of the processor counts reference cycles, which tick at the
    TSC's rate whatever the frequency is, and only while the processor isn't halted; its samples
    also see code that has interrupts disabled.
    Raises CpuOffline, NoHardwareCounter (only with `hardware`), PermissionDenied or AttachFailed.
    """
    if hardware:
        attr = _PerfEventAttr(
            type=_PERF_TYPE_HARDWARE,
            config=_PERF_COUNT_HW_REF_CPU_CYCLES,
            sample_period=period_cycles(hz, *_tsc_clock()),
            flags=_DISABLED | _PINNED,  # else it may share its counter, and lose samples
        )
    else:
        attr = _PerfEventAttr(
            type=_PERF_TYPE_SOFTWARE,
            config=_PERF_COUNT_SW_CPU_CLOCK,
            sample_period=_NS_PER_SECOND // hz,
            flags=_DISABLED | _EXCLUDE_IDLE,
        )
    fd = _open(attr, -1, cpu)
    if fd >= 0:
        if hardware and not _counts(fd):
            os.close(fd)
            raise NoHardwareCounter(f"The reference cycles of processor {cpu} are not counted.")
        return fd
    code = ctypes.get_errno()
    if code == errno.ENODEV:
        raise CpuOffline(f"Processor {cpu} is not online.")
    if hardware and code not in (*_NOT_ALLOWED, errno.EMFILE):
        raise NoHardwareCounter(f"Processor {cpu} has no reference cycles: {os.strerror(code)}.")
    raise refused(f"to sample processor {cpu}")


def period_cycles(hz: int, time_shift: int, time_mult: int) -> int:
    """Ticks of the TSC in 1/`hz` s, where ns = ticks * `time_mult` >> `time_shift`.

    (The kernel's own words for the TSC's rate: struct perf_event_mmap_page.)
    """
    return (_NS_PER_SECOND << time_shift) // (hz * time_mult)


def enable(perf_fd: int) -> None:
    """Let a perf event that was opened disabled count, and run its program."""
    fcntl.ioctl(perf_fd, _PERF_EVENT_IOC_ENABLE, 0)


def disable(perf_fd: int) -> None:
    """Stop a perf event; its program runs no more until it is enabled again."""
    fcntl.ioctl(perf_fd, _PERF_EVENT_IOC_DISABLE, 0)


def count(perf_fd: int) -> int | None:
    """What the event has counted (nanoseconds or cycles); None if it failed.

    A pinned event fails, for good, when its processor's counter is somebody else's.
    """
    value = os.read(perf_fd, 8)
    return int.from_bytes(value, "little") if value else None


def _counts(perf_fd: int) -> bool:
    """Whether an event gets a counter, and it moves: some virtual machines only pretend.

    The interrupts that enable and read it are work enough. It is disabled when this returns.
    """
    enable(perf_fd)
    counted = count(perf_fd)
    disable(perf_fd)
    return bool(counted)


def _tsc_clock() -> tuple[int, int]:
    """time_shift and time_mult of the TSC, which the kernel tells beside every perf event."""
    fd = _open_own_clock()
    if fd < 0:
        raise refused("a perf event of our own thread")
    try:
        with mmap.mmap(fd, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ) as page:
            capabilities, _, time_shift, time_mult = _CLOCK.unpack_from(page, _CLOCK_AT)
    except OSError as error:
        raise NoHardwareCounter(
            f"The kernel does not show the rate of the TSC: {error}."
        ) from error
    finally:
        os.close(fd)
    if not capabilities & _CAP_USER_TIME or not time_mult:
        raise NoHardwareCounter("The kernel does not tell the rate of the TSC.")
    return time_shift, time_mult


def _open_own_clock() -> int:
    attr = _PerfEventAttr(
        type=_PERF_TYPE_SOFTWARE, config=_PERF_COUNT_SW_CPU_CLOCK, flags=_DISABLED
    )
    return _open(attr, 0, -1)


def _open(attr: _PerfEventAttr, pid: int, cpu: int) -> int:
    """The system call perf_event_open; -1 if refused (the errno is ctypes')."""
    attr.size = ctypes.sizeof(attr)
    flags = ctypes.c_ulong(_PERF_FLAG_FD_CLOEXEC)
    return int(_libc.syscall(_SYS_PERF_EVENT_OPEN, ctypes.byref(attr), pid, cpu, -1, flags))


def link_program(prog_fd: int, perf_fd: int, cookie: int) -> int:
    """Run the BPF program on every hit of the perf event, with an attach cookie; returns an fd.

    Both file descriptors must stay open as long as the program is to run. Raises
    KernelUnsupported before Linux 5.15, PermissionDenied or AttachFailed.
    """
    attr = _LinkCreate(
        prog_fd=prog_fd, target_fd=perf_fd, attach_type=_BPF_PERF_EVENT, bpf_cookie=cookie
    )
    fd = bpf(_BPF_LINK_CREATE, attr)
    if fd < 0:
        if ctypes.get_errno() == errno.EINVAL:
            raise KernelUnsupported(
                f"This kernel ({os.uname().release}) can't link BPF programs to perf events "
                "with attach cookies: Linux 5.15 or newer is needed."
            )
        raise refused("to link a BPF program to its probe")
    return fd


def load_nothing(kind: ProgramKind, attach_type: int = 0) -> int:
    """Load a BPF program that does nothing; returns its fd. Raises OSError."""
    return load_program(kind, NOTHING, attach_type=attach_type)


def load_program(
    kind: ProgramKind,
    instructions: bytes,
    *,
    attach_type: int = 0,
    name: str = "",
    license: str = "GPL",
) -> int:
    """Load a BPF program; returns its fd.

    Raises OSError, whose text has the last of what the verifier said of a program of that `name`.
    """
    code = ctypes.create_string_buffer(instructions, len(instructions))
    license_text = ctypes.create_string_buffer(license.encode())
    attr = _ProgLoad(
        prog_type=_BPF_PROG_TYPES[kind],
        insn_count=len(instructions) // 8,
        insns=ctypes.addressof(code),
        license=ctypes.addressof(license_text),
        prog_name=name.encode()[:_NAME_BYTES],
        expected_attach_type=attach_type,
    )
    fd = bpf(_BPF_PROG_LOAD, attr)
    if fd >= 0:
        return fd
    number = ctypes.get_errno()
    text = os.strerror(number)
    if name and number not in _NOT_ALLOWED[:1]:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        attr.log_level, attr.log_bytes, attr.log = 1, _LOG_BYTES, ctypes.addressof(log)
        again = bpf(_BPF_PROG_LOAD, attr)
        if again >= 0:  # there was no memory, or a signal came
            return again
        text += "\n" + log.value.decode(errors="replace").strip()
    raise OSError(number, text)


def create_map(
    kind: int, key_bytes: int, value_bytes: int, max_entries: int, flags: int = 0, name: str = ""
) -> int:
    """A BPF map of that enum bpf_map_type; returns its fd, -1 if refused (the errno is ctypes')."""
    short = name.encode()[: _MAP_NAME_BYTES - 1]
    attr = _MapCreate(kind, key_bytes, value_bytes, max_entries, map_flags=flags, map_name=short)
    return bpf(_BPF_MAP_CREATE, attr)


def bpf(command: int, attr: ctypes.Structure) -> int:
    """The system call bpf; -1 if refused (the errno is ctypes')."""
    return int(_libc.syscall(_SYS_BPF, command, ctypes.byref(attr), ctypes.sizeof(attr)))


def refused(what: str) -> AttachFailed | PermissionDenied:
    """What to raise after a system call that was refused, by ctypes' errno."""
    code = ctypes.get_errno()
    text = f"The kernel refused {what}: {os.strerror(code)} (errno {code})."
    if code in _NOT_ALLOWED:
        return PermissionDenied(f"{text} {way_out()}")
    if code == errno.EMFILE:
        return AttachFailed(f"{text} Allow more open files (`ulimit -n`), or record fewer at once.")
    return AttachFailed(f"{text} `dmesg` may tell more.")
