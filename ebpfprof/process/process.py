"""The process that is profiled: its identity, the file that it runs, and its mappings."""

from __future__ import annotations

import os
import re
import select
import struct
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ebpfprof.console.text import printable
from ebpfprof.errors import (
    EbpfprofError,
    NoSuchProcess,
    TargetGone,
    UnsupportedTarget,
    to_type,
)
from ebpfprof.kernel.clock import clock_ahead_ns
from ebpfprof.privileges.checks import not_yours
from ebpfprof.process.descriptors import Descriptors
from ebpfprof.process.file_opener import FileOpener
from ebpfprof.process.memory import Memory
from ebpfprof.process.pages import KernelPages, Pages
from ebpfprof.process.proc_files import ProcFiles
from ebpfprof.process.threads import Threads
from ebpfprof.profile.model import Mapping
from ebpfprof.system.bounded_file import read_bounded
from ebpfprof.system.closing import Closing
from ebpfprof.system.first_thread import reading_pid

if TYPE_CHECKING:  # with numpy: late, see Session.__init__
    from symbolizer.elf.file import ElfFile

_CPUCLOCK_SCHED = 2  # include/linux/posix-timers_types.h
_AT_ENTRY = 9  # include/uapi/linux/auxvec.h
_PF_KTHREAD = 0x0020_0000  # include/linux/sched.h
_MAX_PROC_BYTES = 1 << 24
_EXEC_PATIENCE_S = 3.0
_EXEC_TICK_S = 0.001
_LAST_MOMENTS_MS = 100
_UNSAFE_IN_NAMES = re.compile(r"[^A-Za-z0-9_.+-]")
_MAPS_LINE = re.compile(
    rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ..x. ([0-9a-f]{1,16}) "
    rb"([0-9a-f]{1,5}):([0-9a-f]{1,5}) (\d{1,20}) *(.*)"
)
_DELETED = " (deleted)"
_OF_MEMORY = ("auxv", "maps")
"""Files of /proc/PID that are empty once the first thread has ended."""


@dataclass(frozen=True, slots=True)
class TargetEnd:
    """Why a target can't be recorded any longer. `is_exec`: the process still runs."""

    text: str
    is_exec: bool = False


@dataclass(frozen=True, slots=True)
class MapsLine:
    """An executable line of /proc/PID/maps: addresses [start, limit) from `offset` of a file.

    `device` and `inode` are those of the file, 0 if there is none. `name` is as the kernel writes
    it, with " (deleted)" behind the name of a deleted file.
    """

    start: int
    limit: int
    offset: int
    device: int
    inode: int
    name: str

    @property
    def path(self) -> str:
        """The name without the kernel's remark that the file was deleted."""
        return self.name.removesuffix(_DELETED)


class Target(Closing):
    """One running process, pinned by its pidfd, its open executable and its auxiliary vector.

    So we notice if its pid is reused, if it calls exec or ends, and read the file that it runs even
    if that is deleted or replaced on disk. Any thread may use it.
    """

    _known_lines: tuple[bytes, tuple[MapsLine, ...]] = b"", ()
    _memory: Memory | None = None
    _opening = threading.Lock()
    """Held while the memory of a target is opened, which takes a few microseconds."""

    def __init__(self, pid: int, files: FileOpener | None = None) -> None:
        """Open process `pid`; `files` opens what it runs and has mapped.

        Raises NoSuchProcess, UnsupportedTarget (a thread id, a kernel thread, a zombie),
        PermissionDenied, EbpfprofError or TargetGone.
        """
        from symbolizer.allowance import Allowance  # with numpy: late, see Session.__init__

        self.pid = pid
        self.held = ExitStack()
        """What is closed with it."""
        self.files = files or FileOpener()
        self.allowance = Allowance()
        """What reading all of its files may take."""
        self._pidfd = _pidfd(pid)
        try:
            _wait_for_program(pid)
            self._auxv = self._read("auxv")
            link = f"/proc/{self.reading_pid}/exe"
            self.exe_fd = self.files.open(link)
            self.exe_name = os.readlink(link).removesuffix(_DELETED)
            # Paths in /proc have only the pid. If the pinned process still runs, and has not called
            # exec, then all that was read belongs to the same program.
            self.require_running()
        except BaseException as error:  # Ctrl-C too: nobody else closes the files
            self.close()
            if isinstance(error, FileNotFoundError | ProcessLookupError):
                raise NoSuchProcess(_gone(pid)) from error
            if isinstance(error, PermissionError):
                raise not_yours(pid, "its executable") from error
            if isinstance(error, OSError):
                raise EbpfprofError(
                    f"The executable of process {pid} can't be read: {error.strerror}. Its "
                    "file system (NFS, FUSE) may have failed. To see which file it is:"
                    + to_type(f"readlink /proc/{pid}/exe")
                ) from error
            raise

    @property
    def reading_pid(self) -> int:
        """The number by which its memory and files can be read: that of a thread that runs."""
        return reading_pid(self.pid)

    @property
    def name(self) -> str:
        """The command's name, safe as a part of a file name."""
        return _UNSAFE_IN_NAMES.sub("_", os.path.basename(self.exe_name))[:64] or "unnamed"

    def load_bias(self, entry: int) -> int:
        """What the kernel added to link-time addresses, given the ELF header's entry point.

        Raises TargetGone if the process has ended.
        """
        for key, value in struct.iter_unpack("<QQ", self._auxv[: len(self._auxv) // 16 * 16]):
            if key == _AT_ENTRY:
                return int(value) - entry
        raise self._has_gone()

    def open_elf(self) -> ElfFile:
        """Open the file that it runs; its readers share `allowance`.

        Raises ElfError or UnsupportedElf.
        """
        from symbolizer.elf.file import ElfFile

        return ElfFile.open(self.exe_fd, self.allowance)

    @property
    def memory(self) -> Memory:
        """Its memory: opened once, for all that read it, and closed with the target.

        Raises TargetGone or PermissionDenied.
        """
        with self._opening:
            if self._memory is None:
                pages = self.open_pages()
                self.held.callback(pages.close)
                self._memory = Memory(self.pid, pages)
            return self._memory

    def open_pages(self) -> Pages:
        """Open what its memory is read from. Raises TargetGone or PermissionDenied."""
        return KernelPages(self.pid, self.reading_pid, self.ending)

    def threads(self) -> Threads:
        """What its threads do in the kernel."""
        return Threads(ProcFiles(self.pid))

    def descriptors(self) -> Descriptors:
        """What its file descriptors stand for."""
        return Descriptors(ProcFiles(self.reading_pid))

    def environment(self) -> tuple[bytes, ...]:
        """The variables, as "NAME=value", with which it was started; () if unknown."""
        return tuple(ProcFiles(self.reading_pid).read("environ").split(b"\0"))

    def clock_ahead_ns(self) -> int | None:
        """By how much its CLOCK_MONOTONIC is ahead of ours; None if that is unknown."""
        return clock_ahead_ns(self.pid)

    def executable_mappings(self, path: str, build_id: str) -> tuple[Mapping, ...]:
        """The executable lines of /proc/PID/maps, those of the file `path` first.

        pprof takes the first for the main binary. `build_id` is that of the file. Empty if the
        process has ended.
        """
        mappings = [
            Mapping(
                line.start,
                line.limit,
                line.offset,
                line.path,
                build_id if line.path == path else "",
            )
            for line in self.executable_lines()
        ]
        return tuple(sorted(mappings, key=lambda mapping: mapping.filename != path))

    def executable_lines(self) -> tuple[MapsLine, ...]:
        """The executable lines of /proc/PID/maps, by address; empty if the process has ended."""
        try:
            text = self._read("maps")
        except OSError:
            return ()
        known_text, lines = self._known_lines
        if text != known_text:  # callers ask often, and mappings rarely change
            lines = _executable_lines(text)
            self._known_lines = text, lines
        return lines

    def ending(self) -> TargetEnd | None:
        """Why the target no longer runs what was opened, or None while it does."""
        try:
            auxv = self._read("auxv")
        except OSError:
            auxv = b""
        end = select.poll()
        end.register(self._pidfd, select.POLLIN)
        # It is empty in a process's last moments. The pidfd alone knows whether all threads ended.
        if end.poll(0 if auxv else _LAST_MOMENTS_MS):
            return TargetEnd(f"process {self.pid} ended")
        # A new program gets a new auxiliary vector (other random bytes, other vDSO).
        if auxv and auxv != self._auxv:
            return TargetEnd(f"process {self.pid} replaced itself by another program (exec)", True)
        return None

    def require_running(self) -> None:
        """Raise TargetGone unless the process still runs the program that was opened."""
        ending = self.ending()
        if ending:
            raise TargetGone(f"Nothing was recorded: {ending.text} while the probes were set up.")

    def innermost_pid(self) -> int:
        """The process's number in its own pid namespace.

        Raises TargetGone if it has ended.
        """
        try:
            match = re.search(rb"^NSpid:.*?(\d+)$", self._read("status"), re.MULTILINE)
        except OSError:
            match = None
        if match is None:
            raise self._has_gone()
        return int(match[1])

    def pid_namespace(self) -> tuple[int, int]:
        """Device and inode of its pid namespace. Raises TargetGone if it has ended."""
        try:
            status = os.stat(f"/proc/{self.pid}/ns/pid")
        except OSError as error:
            raise self._has_gone() from error
        return status.st_dev, status.st_ino

    def cpu_ns(self) -> int | None:
        """The CPU time of all its threads since it started, in ns; None if it has ended."""
        try:
            return time.clock_gettime_ns(~self.pid << 3 | _CPUCLOCK_SCHED)
        except OSError:
            return None

    def kernel_ns(self) -> int | None:
        """The part of its CPU time in the kernel, by ticks, in ns; None if it has ended."""
        try:
            fields = self._read("stat").rpartition(b")")[2].split()
            return int(fields[12]) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))  # stime
        except (OSError, IndexError, ValueError):
            return None

    def peak_rss_bytes(self) -> int:
        """The most memory it ever had in RAM (VmHWM), in bytes; 0 if it has ended."""
        try:
            with open(f"/proc/{self.reading_pid}/status", "rb") as file:
                match = re.search(rb"^VmHWM:\s*(\d+) kB$", file.read(), re.MULTILINE)
        except OSError:
            return 0
        return 1024 * int(match[1]) if match else 0

    def tracer(self) -> str:
        """The tracer, such as "process 99 (gdb)"; "" if there is none, or it is ebpfprof."""
        try:
            match = re.search(rb"^TracerPid:\t([1-9]\d*)$", self._read("status"), re.MULTILINE)
            # The number is that of a thread.
            if match is None or os.path.exists(f"/proc/self/task/{int(match[1])}"):
                return ""
            name = Path(f"/proc/{int(match[1])}/comm").read_text(errors="replace")
        except OSError:
            return ""
        return f"process {int(match[1])} ({printable(name.strip())})"

    @property
    def pidfd(self) -> int:
        """Its pidfd, which poll() reports as readable once the process has ended."""
        return self._pidfd

    def close(self) -> None:
        """Close the pidfd, the executable, the memory and all that `held` has."""
        self.held.close()
        for name in ("_pidfd", "exe_fd"):
            fd = self.__dict__.pop(name, None)
            if fd is not None:
                os.close(fd)

    def _has_gone(self) -> TargetGone:
        return TargetGone(f"Process {self.pid} ended before it could be read.")

    def _read(self, name: str) -> bytes:
        """A file of /proc/PID, or of a thread that runs where that is not the same."""
        pid = self.reading_pid if name in _OF_MEMORY else self.pid
        return read_bounded(f"/proc/{pid}/{name}", _MAX_PROC_BYTES)


def _executable_lines(maps: bytes) -> tuple[MapsLine, ...]:
    lines = []
    # Not splitlines(): in names the kernel escapes newlines only (fs/proc/task_mmu.c).
    for line in maps.split(b"\n")[:-1]:
        match = _MAPS_LINE.fullmatch(line)
        if match:
            start, limit, offset, major, minor = (int(f, 16) for f in match.groups()[:5])
            device = os.makedev(major, minor)
            name = os.fsdecode(match[7])
            lines.append(MapsLine(start, limit, offset, device, int(match[6]), name))
    return tuple(lines)


def _gone(pid: int) -> str:
    return (
        f"There is no process {pid}, or it has ended. Inside a container, pids differ from those "
        f"outside. To look it up:{to_type('pgrep -a NAME')}"
    )


def require_process(pid: int) -> None:
    """Check that there is such a process, without opening its files.

    Raises NoSuchProcess, or UnsupportedTarget for a thread of another process.
    """
    os.close(_pidfd(pid))


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise NoSuchProcess(_gone(pid)) from error
    except OSError as error:
        leader = _thread_group(pid)
        if leader not in (None, pid):
            raise UnsupportedTarget(
                f"{pid} is a thread of process {leader}. Profile the whole process: --pid {leader}."
            ) from error
        raise NoSuchProcess(_gone(pid)) from error


def _thread_group(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^Tgid:\s*(\d+)$", status, re.MULTILINE)
    return int(match[1]) if match else None


def _wait_for_program(pid: int) -> None:
    """Wait while exec replaces the program; raises UnsupportedTarget if there will be none.

    Exec sets the start of the code after the auxiliary vector, which is zero until then and would
    be taken for another program's later (load_elf_binary, fs/binfmt_elf.c of Linux 6.1 to 7.3).
    """
    until_s = time.monotonic() + _EXEC_PATIENCE_S
    while int((fields := _program_fields(pid))[23]) == 0:  # startcode; 1 if we may not know it
        if fields[0] == "R":  # it waits for a processor, not for a file system
            until_s = time.monotonic() + _EXEC_PATIENCE_S
        if time.monotonic() >= until_s:
            raise EbpfprofError(
                f"Process {pid} has not begun to run its program after {_EXEC_PATIENCE_S:.0f} s: "
                "exec still waits. Check the file system of its executable (NFS, FUSE), and try "
                "again."
            )
        time.sleep(_EXEC_TICK_S)  # nothing signals the end of exec


def _program_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third, the state, on (proc_pid_stat(5)).

    Raises UnsupportedTarget for what runs no program.
    """
    stat = Path(f"/proc/{reading_pid(pid)}/stat").read_text(errors="replace")
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        raise UnsupportedTarget(f"Process {pid} has ended and waits for its parent (a zombie).")
    if int(fields[6]) & _PF_KTHREAD:
        raise UnsupportedTarget(f"{pid} is a thread of the kernel and runs no Go program.")
    leader = _thread_group(pid)
    if leader not in (None, pid):
        raise UnsupportedTarget(
            f"{pid} is a thread of process {leader}. Profile the whole process: --pid {leader}."
        )
    return fields
