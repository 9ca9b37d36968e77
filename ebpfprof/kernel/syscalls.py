"""The system calls bpf() and perf_event_open() as they are: numbers, attributes, errors.

Each function raises OSError with the kernel's errno; what an error means, callers say
(ebpfprof.kernel.refusals). The kernel refuses bytes behind the fields that it knows unless they are
0: each struct here ends where the fields end that we use.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import Final, Literal

# arch/x86/entry/syscalls/syscall_64.tbl
_SYS_PERF_EVENT_OPEN = 298
_SYS_BPF = 321

# enum bpf_cmd, include/uapi/linux/bpf.h
_MAP_CREATE = 0
_MAP_LOOKUP_ELEM = 1
_MAP_UPDATE_ELEM = 2
_MAP_DELETE_ELEM = 3
_PROG_LOAD = 5
_PROG_TEST_RUN = 10
_RAW_TRACEPOINT_OPEN = 17
_MAP_LOOKUP_BATCH = 24
_MAP_UPDATE_BATCH = 26
_LINK_CREATE = 28

MAP_TYPE_HASH: Final = 1
MAP_TYPE_ARRAY: Final = 2
MAP_TYPE_PROG_ARRAY: Final = 3
MAP_TYPE_RINGBUF: Final = 27
NO_PREALLOC: Final = 1 << 0
"""A flag of a hash map: rows take memory when they come (BPF_F_NO_PREALLOC)."""
MMAPABLE: Final = 1 << 10
"""A flag of an array: its elements can be mapped into memory (BPF_F_MMAPABLE, Linux 5.5 on)."""

ProgramKind = Literal["kprobe", "perf_event", "raw_tracepoint"]
_PROG_TYPES: Final[dict[ProgramKind, int]] = {"kprobe": 2, "perf_event": 7, "raw_tracepoint": 17}
TRACE_UPROBE_MULTI: Final = 48
"""The attach type of programs for links to uprobes (BPF_TRACE_UPROBE_MULTI)."""
_PERF_EVENT = 41

NOOP_CODE: Final = bytes.fromhex("b700000000000000 9500000000000000")
"""The instructions of a BPF program that does nothing: r0 = 0; exit."""
INSTRUCTION_BYTES: Final = 8
_OBJ_NAME_BYTES = 16  # with the 0 at the end
_LOG_BYTES = 1 << 24  # the verifier's words on a million instructions; touched as far as written

_PERF_FLAG_FD_CLOEXEC = 1 << 3  # include/uapi/linux/perf_event.h

_libc = ctypes.CDLL(None, use_errno=True)


class PerfEventAttr(ctypes.Structure):
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
        ("map_name", ctypes.c_char * _OBJ_NAME_BYTES),
    ]


class _Element(ctypes.Structure):
    """The beginning of union bpf_attr for commands on one element of a map."""

    _fields_ = [
        ("map_fd", ctypes.c_uint32),
        ("key", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


class _Batch(ctypes.Structure):
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
        ("prog_name", ctypes.c_char * _OBJ_NAME_BYTES),
        ("prog_ifindex", ctypes.c_uint32),
        ("expected_attach_type", ctypes.c_uint32),
    ]


class _TestRun(ctypes.Structure):
    """union bpf_attr for BPF_PROG_TEST_RUN."""

    _pack_ = 4
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


class _RawTracepoint(ctypes.Structure):
    """The beginning of union bpf_attr for BPF_RAW_TRACEPOINT_OPEN."""

    _fields_ = [("name", ctypes.c_void_p), ("prog_fd", ctypes.c_uint32)]


class _LinkPerfEvent(ctypes.Structure):
    """union bpf_attr for BPF_LINK_CREATE on a perf event (Linux 5.15 on)."""

    _fields_ = [
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("bpf_cookie", ctypes.c_uint64),
    ]


class _LinkUprobes(ctypes.Structure):
    """union bpf_attr for BPF_LINK_CREATE of a BPF_TRACE_UPROBE_MULTI program (Linux 6.6 on)."""

    _pack_ = 4
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


def perf_event_open(attr: PerfEventAttr, pid: int, cpu: int) -> int:
    """Open a perf event; returns its fd. -1 stands for every process or every processor."""
    attr.size = ctypes.sizeof(attr)
    flags = ctypes.c_ulong(_PERF_FLAG_FD_CLOEXEC)
    return _checked(_libc.syscall(_SYS_PERF_EVENT_OPEN, ctypes.byref(attr), pid, cpu, -1, flags))


def create_map(
    kind: int, key_bytes: int, value_bytes: int, max_entries: int, flags: int = 0, name: str = ""
) -> int:
    """Create a map of that enum bpf_map_type, whose name has 15 bytes at most; returns its fd."""
    attr = _MapCreate(kind, key_bytes, value_bytes, max_entries, flags, map_name=_short(name))
    return _bpf(_MAP_CREATE, attr)


def lookup_element(map_fd: int, key: int, value: int) -> None:
    """Copy an element of a map to the address `value`; `key` is the address of its key."""
    _bpf(_MAP_LOOKUP_ELEM, _Element(map_fd, key, value))


def update_element(map_fd: int, key: int, value: int) -> None:
    """Write an element of a map; `key` and `value` are the addresses of its key and new value."""
    _bpf(_MAP_UPDATE_ELEM, _Element(map_fd, key, value))


def delete_element(map_fd: int, key: int) -> None:
    """Delete an element of a map; `key` is the address of its key."""
    _bpf(_MAP_DELETE_ELEM, _Element(map_fd, key))


def lookup_batch(
    map_fd: int, begin: int | None, end: int, keys: int, values: int, most: int
) -> tuple[int, bool]:
    """Copy up to `most` rows of a hash map to the addresses `keys` and `values` (Linux 5.6 on).

    Returns how many, and whether they are the last. `begin` is the address of the position to
    continue from, None for the start; the kernel writes the next one to the address `end`. Raises
    ENOSPC if one bucket holds more rows.
    """
    attr = _Batch(begin, end, keys, values, most, map_fd)
    try:
        _bpf(_MAP_LOOKUP_BATCH, attr)
    except FileNotFoundError:
        return int(attr.count), True
    return int(attr.count), False


def update_batch(map_fd: int, keys: int, values: int, count: int) -> int:
    """Add or replace rows of a hash map; returns how many went in before it was full.

    `keys` and `values` are addresses of `count` rows each. Linux 5.6 has that.
    """
    attr = _Batch(None, None, keys, values, count, map_fd)
    try:
        _bpf(_MAP_UPDATE_BATCH, attr)
    except OSError as error:
        if error.errno not in (errno.E2BIG, errno.ENOSPC, errno.ENOMEM):
            raise
    return int(attr.count)


def load_program(
    kind: ProgramKind,
    instructions: bytes,
    *,
    attach_type: int = 0,
    name: str = "",
    license: str = "GPL",
) -> int:
    """Load a BPF program; returns its fd.

    The text of an error has the verifier's last words about a program that has a `name`.
    """
    code = ctypes.create_string_buffer(instructions, len(instructions))
    license_text = ctypes.create_string_buffer(license.encode())
    attr = _ProgLoad(
        prog_type=_PROG_TYPES[kind],
        insn_count=len(instructions) // INSTRUCTION_BYTES,
        insns=ctypes.addressof(code),
        license=ctypes.addressof(license_text),
        prog_name=_short(name),
        expected_attach_type=attach_type,
    )
    try:
        return _bpf(_PROG_LOAD, attr)
    except OSError as refusal:
        if not name or refusal.errno == errno.EPERM:
            raise
        log = ctypes.create_string_buffer(_LOG_BYTES)
        attr.log_level, attr.log_bytes, attr.log = 1, _LOG_BYTES, ctypes.addressof(log)
        try:
            return _bpf(_PROG_LOAD, attr)  # there was no memory, or a signal came
        except OSError:
            words = log.value.decode(errors="replace").strip()
            raise OSError(refusal.errno, f"{refusal.strerror}\n{words}") from refusal


def load_noop(kind: ProgramKind, attach_type: int = 0) -> int:
    """Load a BPF program that does nothing; returns its fd."""
    return load_program(kind, NOOP_CODE, attach_type=attach_type)


def run_program(prog_fd: int, arguments: Sequence[int]) -> None:
    """Run a program for raw tracepoints on this thread; its context is a struct of u64.

    Linux 5.10 has that.
    """
    context = (ctypes.c_uint64 * len(arguments))(*arguments)
    attr = _TestRun(
        prog_fd=prog_fd,
        context_in_bytes=ctypes.sizeof(context),
        context_in=ctypes.addressof(context),
    )
    _bpf(_PROG_TEST_RUN, attr)


def open_raw_tracepoint(prog_fd: int, name: str) -> int:
    """Run a program whenever the kernel passes the tracepoint `name`, until the returned fd is
    closed (Linux 4.17 on)."""
    text = ctypes.create_string_buffer(name.encode())
    return _bpf(_RAW_TRACEPOINT_OPEN, _RawTracepoint(ctypes.addressof(text), prog_fd))


def link_perf_event(prog_fd: int, perf_fd: int, cookie: int) -> int:
    """Run a program on every hit of a perf event, with an attach cookie; returns the link's fd."""
    return _bpf(_LINK_CREATE, _LinkPerfEvent(prog_fd, perf_fd, _PERF_EVENT, 0, cookie))


def link_uprobes(prog_fd: int, path: str, offsets: Sequence[tuple[int, int]], pid: int) -> int:
    """Run a program when process `pid` passes any of the `offsets` into the file `path`.

    An offset in bytes stands with the attach cookie that the program reads there. Returns the
    link's fd.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    numbers = ctypes.c_uint64 * len(offsets)
    positions, cookies = (numbers(*column) for column in zip(*offsets, strict=True))
    attr = _LinkUprobes(
        prog_fd=prog_fd,
        attach_type=TRACE_UPROBE_MULTI,
        path=ctypes.addressof(name),
        offsets=ctypes.addressof(positions),
        cookies=ctypes.addressof(cookies),
        count=len(offsets),
        pid=pid,
    )
    return _bpf(_LINK_CREATE, attr)


def _bpf(command: int, attr: ctypes.Structure) -> int:
    return _checked(_libc.syscall(_SYS_BPF, command, ctypes.byref(attr), ctypes.sizeof(attr)))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _short(name: str) -> bytes:
    return name.encode()[: _OBJ_NAME_BYTES - 1]
