"""The kernel's perf events: those for uprobes, and those that sample processors.

BCC's own attach falls back to tracefs, where a probe outlives a killed profiler, and has no
attach cookies. A perf event of our own ends with its file descriptor, whatever happens.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import struct
from pathlib import Path

from ebpfprof.errors import AttachFailed, KernelUnsupported
from ebpfprof.kernel import syscalls
from ebpfprof.kernel.refusals import NOT_ALLOWED, attach_refused
from ebpfprof.kernel.syscalls import PerfEventAttr
from ebpfprof.privileges.checks import may_put_perf_uprobes

# include/uapi/linux/perf_event.h
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


class CpuOffline(AttachFailed):
    """The processor is not online, or no longer; code that samples all processors catches this."""


class NoHardwareCounter(AttachFailed):
    """No usable counter of the processor's reference cycles; samplers use the clock instead."""


def open_uprobe(path: str, offset: int, pid: int) -> int:
    """Open a uprobe at `offset` (bytes into the file `path`) in process `pid`; returns its fd.

    The event fires in every thread of that process and in no other process. It does nothing
    until a program is linked to it. Raises KernelUnsupported if the kernel has no uprobe events
    (before Linux 4.17), PermissionDenied, or AttachFailed with the errno named.
    """
    try:
        pmu_type = int(_UPROBE_PMU.read_text())
    except (OSError, ValueError) as error:
        raise KernelUnsupported(
            f"This kernel offers no uprobes as perf events ({_UPROBE_PMU} can't be read: {error}). "
            "Linux 4.17 or newer with CONFIG_UPROBE_EVENTS is needed, and /sys must be mounted."
        ) from error
    name = ctypes.create_string_buffer(os.fsencode(path))
    attr = PerfEventAttr(
        type=pmu_type, sample_period=1, config1=ctypes.addressof(name), config2=offset
    )
    try:
        return syscalls.perf_event_open(attr, pid, -1)
    except OSError as error:
        probe = f"a probe at offset {offset:#x} in process {pid}"
        if error.errno == errno.EACCES and not may_put_perf_uprobes():
            probe += ", for which it wants CAP_SYS_ADMIN (Linux 6.10 and newer do without)"
        raise attach_refused(probe, error) from error


def may_open_events() -> bool:
    """Whether this thread may open perf events at all: it tries one on itself.

    Debian and Ubuntu require CAP_SYS_ADMIN if perf_event_paranoid is 3 or more.
    """
    try:
        os.close(_open_own_clock())
    except OSError as error:
        return error.errno not in NOT_ALLOWED
    return True


def open_cpu_sampler(cpu: int, hz: int, *, hardware: bool) -> int:
    """Open an event that fires `hz` times per second of work of the processor `cpu`; an fd.

    It sees all that runs there, kernel and user, but not the idle task; it is disabled at first,
    and does nothing until a program is linked to it. The period is fixed, so that each sample
    stands for the same span of time. Without `hardware` a timer counts nanoseconds (cpu-clock).
    With it, a counter of the processor counts reference cycles, which tick at the TSC's rate
    whatever the frequency is, and only while the processor isn't halted; its samples also see code
    that has interrupts disabled.
    Raises CpuOffline, NoHardwareCounter (only with `hardware`), PermissionDenied or AttachFailed.
    """
    if hardware:
        attr = PerfEventAttr(
            type=_PERF_TYPE_HARDWARE,
            config=_PERF_COUNT_HW_REF_CPU_CYCLES,
            sample_period=period_cycles(hz, *_tsc_clock()),
            flags=_DISABLED | _PINNED,  # else it may share its counter, and lose samples
        )
    else:
        attr = PerfEventAttr(
            type=_PERF_TYPE_SOFTWARE,
            config=_PERF_COUNT_SW_CPU_CLOCK,
            sample_period=_NS_PER_SECOND // hz,
            flags=_DISABLED | _EXCLUDE_IDLE,
        )
    try:
        fd = syscalls.perf_event_open(attr, -1, cpu)
    except OSError as error:
        if error.errno == errno.ENODEV:
            raise CpuOffline(f"Processor {cpu} is not online.") from error
        if hardware and error.errno not in (*NOT_ALLOWED, errno.EMFILE):
            raise NoHardwareCounter(
                f"Processor {cpu} has no reference cycles: {error.strerror}."
            ) from error
        raise attach_refused(f"to sample processor {cpu}", error) from error
    if hardware and not _counts(fd):
        os.close(fd)
        raise NoHardwareCounter(f"The reference cycles of processor {cpu} are not counted.")
    return fd


def period_cycles(hz: int, time_shift: int, time_mult: int) -> int:
    """Ticks of the TSC in 1/`hz` s, if ns = ticks * `time_mult` >> `time_shift`.

    (The kernel reports the TSC's rate in struct perf_event_mmap_page.)
    """
    return (_NS_PER_SECOND << time_shift) // (hz * time_mult)


def enable(perf_fd: int) -> None:
    """Let a perf event that was opened disabled count, and run its program."""
    fcntl.ioctl(perf_fd, _PERF_EVENT_IOC_ENABLE, 0)


def disable(perf_fd: int) -> None:
    """Stop a perf event; its program does not run until it is enabled again."""
    fcntl.ioctl(perf_fd, _PERF_EVENT_IOC_DISABLE, 0)


def count(perf_fd: int) -> int | None:
    """What the event has counted (nanoseconds or cycles); None if it failed.

    A pinned event fails, for good, when another event takes its processor's counter.
    """
    value = os.read(perf_fd, 8)
    return int.from_bytes(value, "little") if value else None


def link_program(prog_fd: int, perf_fd: int, cookie: int) -> int:
    """Run the BPF program on every hit of the perf event, with an attach cookie; returns an fd.

    Both file descriptors must stay open as long as the program is to run. Raises
    KernelUnsupported before Linux 5.15, PermissionDenied or AttachFailed.
    """
    try:
        return syscalls.link_perf_event(prog_fd, perf_fd, cookie)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise KernelUnsupported(
                f"This kernel ({os.uname().release}) can't link BPF programs to perf events "
                "with attach cookies: Linux 5.15 or newer is needed."
            ) from error
        raise attach_refused("to link a BPF program to its probe", error) from error


def _counts(perf_fd: int) -> bool:
    """Whether an event gets a counter, and it moves: some virtual machines only pretend.

    The interrupts that enable and read it are work enough. It is disabled when this returns.
    """
    enable(perf_fd)
    counted = count(perf_fd)
    disable(perf_fd)
    return bool(counted)


def _tsc_clock() -> tuple[int, int]:
    """time_shift and time_mult of the TSC, which the kernel reports with every perf event."""
    try:
        fd = _open_own_clock()
    except OSError as error:
        raise attach_refused("a perf event of our own thread", error) from error
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
        raise NoHardwareCounter("The kernel does not report the rate of the TSC.")
    return time_shift, time_mult


def _open_own_clock() -> int:
    """Raises OSError."""
    attr = PerfEventAttr(type=_PERF_TYPE_SOFTWARE, config=_PERF_COUNT_SW_CPU_CLOCK, flags=_DISABLED)
    return syscalls.perf_event_open(attr, 0, -1)
