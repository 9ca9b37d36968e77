"""A Target of which all that the kernel would show is saved, or made up."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache

from ebpfprof.process.descriptors import Descriptors
from ebpfprof.process.file_opener import FileOpener
from ebpfprof.process.pages import Pages
from ebpfprof.process.process import MapsLine, Target, TargetEnd
from ebpfprof.process.threads import Threads
from symbolizer import ElfFile
from symbolizer.allowance import Allowance
from symbolizer.errors import ElfError
from tests.images.pages import SavedBytes, SavedFiles, SavedPages

SEARCH_BYTES = 1 << 14
"""What is not saved of an executable reads as zeros where so much or more is read."""
NO_PID = 1 << 23
"""More than any process has (Linux: PID_MAX_LIMIT), so that nothing is read of one by mistake."""


@dataclass(frozen=True)
class Shown:
    """What the kernel showed of a process at one moment.

    `moment_ns` is its CLOCK_MONOTONIC then; None for a process that has no times. `file` has the
    bytes of its executable, of `file_size`.
    """

    name: str = "/usr/bin/program"
    memory: SavedBytes = field(default_factory=lambda: SavedBytes(()))
    files: SavedFiles = field(default_factory=lambda: SavedFiles({}, {}))
    file: SavedBytes = field(default_factory=lambda: SavedBytes(()))
    file_size: int = 0
    moment_ns: int | None = None


@cache
def _executable() -> int:
    """A file that stands for the executable; open_elf() has its bytes."""
    return os.memfd_create("executable")


class SavedTarget(Target):
    """A process that stands still for good. What it does not have raises AttributeError."""

    def __init__(self, shown: Shown, pid: int = NO_PID) -> None:
        self.pid = pid
        self.files = FileOpener()
        self.exe_fd = _executable()
        self.held = ExitStack()
        self.allowance = Allowance()
        self.exe_name = shown.name
        self._shown = shown
        self._auxv = shown.files.read("auxv")
        # By its clock, no time passes between the recording and now.
        self._ahead_ns = 0
        if shown.moment_ns is not None:
            self._ahead_ns = shown.moment_ns - time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def close(self) -> None:
        """Nothing is open but what all have."""
        self.held.close()

    def ending(self) -> TargetEnd | None:
        return None

    def executable_lines(self) -> tuple[MapsLine, ...]:
        status = os.fstat(self.exe_fd)
        return tuple(
            replace(line, device=status.st_dev, inode=status.st_ino)
            if line.path == self.exe_name
            else line
            for line in super().executable_lines()
        )

    def open_elf(self) -> ElfFile:
        return ElfFile(SavedFile(self._shown.file, self._shown.file_size), self.allowance)

    def open_pages(self) -> Pages:
        return SavedPages(self._shown.memory)

    def threads(self) -> Threads:
        return Threads(self._shown.files)

    def descriptors(self) -> Descriptors:
        return Descriptors(self._shown.files)

    def environment(self) -> tuple[bytes, ...]:
        return tuple(self._shown.files.read("environ").split(b"\0"))

    def clock_ahead_ns(self) -> int | None:
        return self._ahead_ns

    def pid_namespace(self) -> tuple[int, int]:
        return 4, 0xEFFF_FFFC  # include/linux/proc_ns.h, PROC_PID_INIT_INO

    def innermost_pid(self) -> int:
        return self.pid

    def _read(self, name: str) -> bytes:
        return self._shown.files.read(name)


class SavedFile:
    """The parts of an ELF file that readers need: see symbolizer.elf.source.ByteSource."""

    def __init__(self, saved: SavedBytes, size: int) -> None:
        self.size = size
        self._saved = saved

    def read(self, offset: int, size: int) -> bytes:
        if not 0 <= offset <= offset + size <= self.size:
            raise ElfError(f"bytes {offset:#x} to {offset + size:#x} lie outside the file")
        if size >= SEARCH_BYTES:
            return self._saved.filled(offset, size)
        data = self._saved.up_to(offset, size)
        if len(data) < size:
            raise ElfError("the file was closed")
        return data

    def close(self) -> None:
        self._saved, self.size = SavedBytes(()), 0
