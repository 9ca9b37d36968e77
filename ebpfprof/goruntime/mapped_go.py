"""Go code in a process whose executable is no Go program: libraries, and programs of ld.so.

A library of -buildmode=c-shared, or a program that was started as an argument of ld.so, is a mapped
file with Go's tables. The executable, which attach records, is then another file.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import printable
from symbolizer import ElfFile, SymbolizerError, read_build_info
from symbolizer.allowance import Allowance

if TYPE_CHECKING:
    from ebpfprof.process.process import MapsLine, Target

_MAX_FILES: Final = 256
_MAX_BYTES: Final = 64 << 20
_MAX_CPU_S: Final = 1.0
_GO_SECTIONS: Final = frozenset((".gopclntab", ".data.rel.ro.gopclntab", ".go.buildinfo"))
_LIBRARY_MODES: Final = frozenset(("c-shared", "plugin", "shared"))


@dataclass(frozen=True, slots=True)
class MappedGo:
    """A mapped file with Go code: what it is, and what to do, both in words."""

    what: str
    way_out: str


def mapped_go(target: Target) -> MappedGo | None:
    """The first mapped file with Go code, by address; None if there is none or it can't be read."""
    seen: set[tuple[int, int]] = set()
    allowance = Allowance(max_bytes=_MAX_BYTES, max_cpu_s=_MAX_CPU_S)
    for line in target.executable_lines():
        file = (line.device, line.inode)
        if not line.inode or file in seen or len(seen) >= _MAX_FILES:
            continue
        seen.add(file)
        mode = _build_mode(target, line, allowance)
        if mode is not None:
            return _described(target, line.path, is_library=mode in _LIBRARY_MODES)
    return None


def _described(target: Target, path: str, *, is_library: bool) -> MappedGo:
    way_out = "ebpfprof can record its CPU profile, with the names of Go functions: --profile cpu."
    here = f"{printable(path)} in process {target.pid}"
    if is_library:
        return MappedGo(f"{here} is a Go library", way_out)
    return MappedGo(
        f"{here} is a Go program, started by {printable(target.name)}",
        f"{way_out} For all profiles, start the program itself.",
    )


def _build_mode(target: Target, line: MapsLine, allowance: Allowance) -> str | None:
    """The -buildmode of a mapped file, "" if it does not say; None if it has no Go code."""
    link = f"/proc/{target.reading_pid}/map_files/{line.start:x}-{line.limit:x}"
    try:
        fd = target.files.open(link)
    except OSError:
        return None
    try:
        with ElfFile.open(fd, allowance) as elf, allowance:
            if not _GO_SECTIONS & elf.sections.keys():
                return None
            info = read_build_info(elf)
            return info.settings.get("-buildmode", "") if info else ""
    except (SymbolizerError, struct.error):
        return None
    finally:
        os.close(fd)
