"""What the kernel lets us do, tried out on the smallest scale; nothing is left behind."""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import ExitStack
from functools import cache
from typing import Literal

from ebpfprof.errors import KernelUnsupported, PermissionDenied
from ebpfprof.kernel import perf_events, uprobe_links
from ebpfprof.privileges.checks import way_out

# include/uapi/linux/bpf.h
_BPF_MAP_LOOKUP_BATCH = 24
_BPF_MAP_TYPE_HASH = 1
_BPF_MAP_TYPE_RINGBUF = 27
_BPF_F_NO_PREALLOC = 1 << 0
_RING_BYTES = 4096


class Untried(Exception):  # noqa: N818 (reads better where it is raised)
    """It could not be tried, for a reason that says nothing of the kernel."""


class Batch(ctypes.Structure):
    """The beginning of union bpf_attr for BPF_MAP_LOOKUP_BATCH and the like."""

    _fields_ = [
        ("in_batch", ctypes.c_void_p),
        ("out_batch", ctypes.c_void_p),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
        ("map_fd", ctypes.c_uint32),
        ("elem_flags", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
    ]


def require_programs() -> None:
    """Load a BPF program as probes run it. Raises KernelUnsupported or PermissionDenied."""
    perf_events.require_bpf()
    os.close(_loaded("kprobe"))


def require_cookies() -> None:
    """Let a BPF program run for a perf event, with an attach cookie; the event never fires.

    Raises KernelUnsupported (before Linux 5.15), PermissionDenied or AttachFailed.
    """
    with ExitStack() as held:
        program = _loaded("perf_event")
        held.callback(os.close, program)
        event = perf_events.open_cpu_sampler(_own_cpu(), 1, hardware=False)
        held.callback(os.close, event)
        held.callback(os.close, perf_events.link_program(program, event, 1))


def require_ring_buffers() -> None:
    """Make a BPF ring buffer. Raises KernelUnsupported (before Linux 5.8) or PermissionDenied."""
    os.close(_map(_BPF_MAP_TYPE_RINGBUF, 0, _RING_BYTES))


def require_batches() -> None:
    """Read all of a BPF map at once. Raises KernelUnsupported (before Linux 5.6)."""
    words = [ctypes.c_uint64() for _ in range(3)]
    out_batch, keys, values = map(ctypes.addressof, words)
    fd = _map(_BPF_MAP_TYPE_HASH, 4, 1)
    try:
        _bpf(
            _BPF_MAP_LOOKUP_BATCH,
            Batch(out_batch=out_batch, keys=keys, values=values, count=1, map_fd=fd),
        )
    except OSError as error:
        if error.errno != errno.ENOENT:  # the map is empty
            raise _refused("batches of a map's rows", error) from error
    finally:
        os.close(fd)


@cache
def have_growing_maps() -> bool:
    """Whether programs of ours may use maps whose rows take memory only when they come.

    Before Linux 6.1 the kernel warns of such programs, or refuses them as it does this one.
    """
    try:
        fd = _map(_BPF_MAP_TYPE_HASH, 4, 1, _BPF_F_NO_PREALLOC)
    except (KernelUnsupported, PermissionDenied):
        return False
    try:
        # r1 = map; r0 = 0; exit
        code = (
            bytes.fromhex("1811 0000") + fd.to_bytes(4, "little") + bytes(8) + perf_events.NOTHING
        )
        os.close(perf_events.load_program("perf_event", code))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def require_uprobes() -> None:
    """Put a probe into this very process, where it passes no more, and take it out.

    Raises KernelUnsupported, PermissionDenied or AttachFailed; Untried if Python's executable
    can't be read, ImportError if what reads it is not installed.
    """
    from symbolizer import ElfError, ElfFile

    path = "/proc/self/exe"
    try:
        with ElfFile.open(path) as elf:
            offset = elf.vaddr_to_offset(elf.entry)
    except ElfError as error:
        raise Untried(f"Python's own executable can't be read: {error}") from error
    if not uprobe_links.is_offered():
        os.close(perf_events.open_uprobe(path, offset, os.getpid()))
        return
    program = _loaded("kprobe", uprobe_links.ATTACH_TYPE)
    try:
        os.close(uprobe_links.link(program, path, [(offset, 0)], os.getpid()))
    finally:
        os.close(program)


def sampling_event() -> Literal["ref-cycles", "cpu-clock"]:
    """Open what samples the CPU profile, on one processor; returns what that is.

    Raises KernelUnsupported, PermissionDenied or AttachFailed.
    """
    cpu = _own_cpu()
    try:
        os.close(perf_events.open_cpu_sampler(cpu, 99, hardware=True))
        return "ref-cycles"
    except perf_events.NoHardwareCounter:
        os.close(perf_events.open_cpu_sampler(cpu, 99, hardware=False))
        return "cpu-clock"


def _own_cpu() -> int:
    """A processor that is online, since we may run there."""
    return min(os.sched_getaffinity(0))


def _loaded(kind: Literal["kprobe", "perf_event"], attach_type: int = 0) -> int:
    try:
        return perf_events.load_nothing(kind, attach_type)
    except OSError as error:
        raise _refused("BPF programs", error) from error


def _map(kind: int, row_bytes: int, max_entries: int, flags: int = 0) -> int:
    """A map whose keys and values have so many bytes each."""
    fd = perf_events.create_map(kind, row_bytes, row_bytes, max_entries, flags)
    if fd < 0:
        code = ctypes.get_errno()
        raise _refused("a BPF map", OSError(code, os.strerror(code)))
    return fd


def _bpf(command: int, attr: ctypes.Structure) -> int:
    """The system call bpf; raises OSError."""
    result = perf_events.bpf(command, attr)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _refused(what: str, error: OSError) -> KernelUnsupported | PermissionDenied:
    text = f"The kernel refused {what}: {error.strerror} (errno {error.errno})."
    if error.errno in (errno.EPERM, errno.EACCES):
        return PermissionDenied(f"{text} {way_out()}")
    return KernelUnsupported(f"{text} Linux 5.15 or newer with CONFIG_BPF_SYSCALL is needed.")
