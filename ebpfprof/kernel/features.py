"""What the kernel must offer, measured on the smallest scale; nothing is left behind."""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack
from functools import cache
from typing import Literal

from ebpfprof.errors import KernelUnsupported, PermissionDenied
from ebpfprof.kernel import perf_events, syscalls, uprobes
from ebpfprof.kernel.refusals import NOT_ALLOWED, not_offered
from ebpfprof.privileges.checks import way_out

_RING_BYTES = 4096


class Untried(Exception):  # noqa: N818 (reads better where it is raised)
    """It could not be tried, for a reason that says nothing of the kernel."""


def require_bpf() -> None:
    """Raise KernelUnsupported unless the kernel has BPF, PermissionDenied unless we may use it."""
    try:
        os.close(syscalls.create_map(syscalls.MAP_TYPE_ARRAY, 4, 4, 1))
    except OSError as error:
        if error.errno in NOT_ALLOWED:
            raise PermissionDenied(
                f"The kernel does not let this user use BPF ({error.strerror}). {way_out()}"
            ) from error
        raise KernelUnsupported(
            f"This kernel ({os.uname().release}) offers no BPF: {error.strerror}. Linux 5.15 or "
            "newer with CONFIG_BPF_SYSCALL is needed."
        ) from error


def require_programs() -> None:
    """Load a BPF program as probes run it. Raises KernelUnsupported or PermissionDenied."""
    require_bpf()
    os.close(_loaded("kprobe"))


def require_cookies() -> None:
    """Link a BPF program to a perf event, with an attach cookie; the event never fires.

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
    os.close(_map(syscalls.MAP_TYPE_RINGBUF, 0, _RING_BYTES))


def require_batches() -> None:
    """Read all of a BPF map at once. Raises KernelUnsupported (before Linux 5.6)."""
    words = [ctypes.c_uint64() for _ in range(3)]
    end, keys, values = map(ctypes.addressof, words)
    fd = _map(syscalls.MAP_TYPE_HASH, 4, 1)
    try:
        syscalls.lookup_batch(fd, None, end, keys, values, 1)
    except OSError as error:
        raise not_offered("batches of a map's rows", error) from error
    finally:
        os.close(fd)


@cache
def have_growing_maps() -> bool:
    """Whether our programs may use maps whose rows take memory only when they come.

    Before Linux 6.1 the kernel warns of such programs, or refuses them as it does this one.
    """
    try:
        fd = _map(syscalls.MAP_TYPE_HASH, 4, 1, syscalls.NO_PREALLOC)
    except (KernelUnsupported, PermissionDenied):
        return False
    try:
        # r1 = map; r0 = 0; exit
        load_map = bytes.fromhex("1811 0000") + fd.to_bytes(4, "little") + bytes(8)
        os.close(syscalls.load_program("perf_event", load_map + syscalls.NOOP_CODE))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


@cache
def have_may_goto() -> bool:
    """Whether loops may have may_goto (common/loops.h): Linux 6.9."""
    # r0 = 0; may_goto to the next instruction; exit
    code = bytes.fromhex("b700000000000000 e500000000000000 9500000000000000")
    try:
        os.close(syscalls.load_program("perf_event", code))
    except OSError:
        return False
    return True


def require_uprobes() -> None:
    """Put a probe into this very process, at a place that it never passes again, and remove it.

    Raises KernelUnsupported, PermissionDenied or AttachFailed; Untried if Python's executable
    can't be read, ImportError if the package that reads it is not installed.
    """
    from symbolizer import ElfError, ElfFile

    path = "/proc/self/exe"
    try:
        with ElfFile.open(path) as elf:
            offset = elf.vaddr_to_offset(elf.entry)
    except ElfError as error:
        raise Untried(f"Python's own executable can't be read: {error}") from error
    try:
        with uprobes.own_probe(path, offset, runs_program=False):
            pass
    except OSError as error:
        raise not_offered("BPF programs", error) from error


def sampling_event() -> Literal["ref-cycles", "cpu-clock"]:
    """Open the event that samples the CPU profile, on one processor; returns which one it is.

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


def _loaded(kind: syscalls.ProgramKind) -> int:
    try:
        return syscalls.load_noop(kind)
    except OSError as error:
        raise not_offered("BPF programs", error) from error


def _map(kind: int, row_bytes: int, max_entries: int, flags: int = 0) -> int:
    """A map with keys and values of these sizes, in bytes."""
    try:
        return syscalls.create_map(kind, row_bytes, row_bytes, max_entries, flags)
    except OSError as error:
        raise not_offered("a BPF map", error) from error
