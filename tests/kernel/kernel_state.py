"""What is in the kernel and in a target because of a profiler: probes, BPF objects, perf events."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import numpy as np

from ebpfprof.kernel import compiler
from ebpfprof.kernel.uprobe_helper import NAME
from ebpfprof.system import file_worker
from symbolizer import ElfFile

BREAKPOINT = 0xCC
DEADLINE_S = 60.0

_SYS_BPF = 321
# include/uapi/linux/bpf.h, the commands that find the next id. Those that open an object by its id
# would change what is tested: a map of functions may stay for ever that is opened again and again
# while it is being freed (prog_array_map_clear of kernel/bpf/arraymap.c, Linux 6.18).
_GET_NEXT_ID = {"prog": 11, "map": 12, "btf": 23, "link": 31}
_OBJECT_ID = re.compile(r"^(prog|map|btf|link)_id:\s*(\d+)$", re.MULTILINE)
_AT_ENTRY = 9

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, order=True)
class BpfObject:
    """A program, map, set of types or link in the kernel."""

    kind: str
    id: int

    def exists(self) -> bool:
        attribute = ctypes.create_string_buffer(struct.pack("<III", self.id - 1, 0, 0))
        if _libc.syscall(_SYS_BPF, _GET_NEXT_ID[self.kind], attribute, 12) == 0:
            (found,) = struct.unpack_from("<I", attribute, 4)
            return bool(found == self.id)
        code = ctypes.get_errno()
        if code != errno.ENOENT:
            raise OSError(code, os.strerror(code))
        return False


def bpf_objects(pid: int) -> set[BpfObject]:
    """The BPF objects that a process, its helpers and what they started hold open.

    With the programs of their links.
    """
    found: set[BpfObject] = set()
    for holder in (pid, *holders(pid)):
        with suppress(FileNotFoundError):  # it ended, or was closed, meanwhile
            for path in Path(f"/proc/{holder}/fdinfo").iterdir():
                with suppress(FileNotFoundError):  # it ended, or was closed, meanwhile
                    text = path.read_text()
                    found |= {BpfObject(kind, int(n)) for kind, n in _OBJECT_ID.findall(text)}
    return found


def leaked_probes() -> int:
    """How often the kernel has said since it booted (and its log goes back) that it leaks one."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    found = 0
    try:
        while True:
            with suppress(BrokenPipeError):  # a record was overwritten meanwhile
                found += b"leaking uprobe" in os.read(log, 8192)
    except BlockingIOError:  # that was the last one
        return found
    finally:
        os.close(log)


def perf_events(pid: int) -> int:
    """How many perf events a process holds open."""
    return sum("[perf_event]" in link for link in _descriptors(pid))


def open_files(pid: int) -> list[str]:
    """What the file descriptors of a process are, sorted."""
    return sorted(_descriptors(pid))


def await_gone(objects: set[BpfObject]) -> None:
    """Wait until none of the BPF objects exists: the kernel frees them some time after."""
    until = monotonic() + DEADLINE_S
    while left := {each for each in objects if each.exists()}:
        assert monotonic() < until, f"still in the kernel: {sorted(left)}"
        sleep(0.01)


def probed(pid: int) -> dict[int, int]:
    """Where a process's text differs from its file: linked address → the byte in memory."""
    with ElfFile.open(f"/proc/{pid}/exe") as elf:
        bias = _entry(pid) - elf.entry
        found: dict[int, int] = {}
        for segment in elf.segments:
            if not segment.executable:
                continue
            file = np.frombuffer(elf.read(segment.vaddr, segment.filesz), np.uint8)
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                text = os.pread(memory.fileno(), segment.filesz, segment.vaddr + bias)
            assert len(text) == segment.filesz
            there = np.frombuffer(text, np.uint8)
            (different,) = np.nonzero(file != there)
            found |= {segment.vaddr + int(at): int(there[at]) for at in different}
        return found


def has_probes(pid: int) -> bool:
    """Whether there are probes in a process; fails if its text was changed in another way."""
    found = probed(pid)
    assert set(found.values()) <= {BREAKPOINT}, found
    # An instruction that is not emulated would be executed here.
    assert "[uprobes]" not in Path(f"/proc/{pid}/maps").read_text()
    return bool(found)


def await_no_probes(pid: int) -> None:
    """Wait until the probes of a profiler that was killed are out: its helper sees to that."""
    until = monotonic() + DEADLINE_S
    while has_probes(pid):
        assert monotonic() < until, "the probes stay"
        sleep(0.01)


def children(pid: int) -> list[int]:
    """The pids of a process's children, without those that work for us."""
    ours = (NAME, compiler.NAME, file_worker.NAME)
    return [child for child in _children(pid) if _name(child) not in ours]


def helpers(pid: int) -> list[int]:
    """The pids of what keeps the probes of a process."""
    return [child for child in _children(pid) if _name(child) == NAME]


def holders(pid: int) -> list[int]:
    """The pids of the helpers of a process, and of those that hold its probes."""
    return [each for helper in helpers(pid) for each in (helper, *descendants(helper))]


def descendants(pid: int) -> list[int]:
    """The pids of a process's children, and theirs, each after its parent."""
    children = _children(pid)
    return [*children, *(descendant for child in children for descendant in descendants(child))]


def _children(pid: int) -> list[int]:
    words = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # it ended, or was closed, meanwhile
            words += (thread / "children").read_text().split()
    return [int(word) for word in words]


def _name(pid: int) -> str:
    """What a process is called; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _descriptors(pid: int) -> list[str]:
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it ended, or was closed, meanwhile
            links.append(os.readlink(path))
    return links


def _entry(pid: int) -> int:
    vector = Path(f"/proc/{pid}/auxv").read_bytes()
    entries = dict(struct.iter_unpack("<QQ", vector))
    return int(entries[_AT_ENTRY])
