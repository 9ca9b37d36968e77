"""A target whose mappings the test chooses."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from ebpfprof.process.file_opener import FileOpener
from ebpfprof.process.mappings import (
    MappedObject,
    ObjectKind,
)
from ebpfprof.process.process import MapsLine, Target, TargetEnd
from ebpfprof.profile.model import Mapping
from symbolizer.allowance import Allowance
from tests.unit.symbolizer.elf.elf_writer import PF_R, PF_X, PT_NOTE, ElfWriter, Load, note

BUILD_ID = bytes(range(20))
CODE = Load(0x401000, b"code" * 1024, PF_R | PF_X)


def image(build_id: bytes = BUILD_ID) -> bytes:
    return ElfWriter([CODE, Load(0x400000, note(b"GNU\0", 3, build_id), kind=PT_NOTE)]).build()


class ScriptedTarget(Target):
    """This process as a target whose /proc/PID/maps the test writes."""

    def __init__(self, exe: Path) -> None:
        self.pid = os.getpid()
        self.exe_fd = os.open(exe, os.O_RDONLY)
        self.exe_name = str(exe)
        self.files = FileOpener()
        self.held = ExitStack()
        self.allowance = Allowance()
        self._pidfd = os.pidfd_open(self.pid)
        self.lines: list[MapsLine] = []
        self.later: list[list[MapsLine]] = []
        self.reads = 0
        self.ended: TargetEnd | None = None

    def executable_lines(self) -> tuple[MapsLine, ...]:
        self.reads += 1
        seen = tuple(self.lines)
        if self.later:
            self.lines = self.later.pop(0)
        return seen

    def ending(self) -> TargetEnd | None:
        return self.ended


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def line(start: int, limit: int, file: Path | None = None, name: str = "") -> MapsLine:
    if file is None:
        return MapsLine(start, limit, 0, 0, 0, name)
    status = file.lstat()
    return MapsLine(start, limit, 0, status.st_dev, status.st_ino, name or str(file))


def anonymous(start: int, limit: int) -> MappedObject:
    return MappedObject(Mapping(start, limit, 0, "[jit]", ""), ObjectKind.ANONYMOUS)
