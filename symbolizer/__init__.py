"""All that can be learned from the bytes of a Go program's ELF file.

    with ElfFile.open("/usr/bin/program") as elf:
        program = GoBinary.open(elf)
        for frame in program.frames(0x4a2c01):
            print(frame.function, frame.file, frame.line)

Bytes in, frozen dataclasses out. Nothing that stands in a file is trusted: an answer is right, or a
SymbolizerError is raised.
"""

from symbolizer.buildinfo import BuildInfo, Module, read_build_info
from symbolizer.elf import ElfFile, Section, Segment
from symbolizer.errors import (
    ElfError,
    GoTableError,
    NotGoError,
    SymbolizerError,
    UnsupportedElf,
    UnsupportedGoVersion,
)
from symbolizer.gobinary import Function, GoBinary
from symbolizer.goruntime import FuncRole, RuntimeLayout, StructLayout, layout_for
from symbolizer.goversion import GoVersion
from symbolizer.inline import Frame

__all__ = [
    "BuildInfo",
    "ElfError",
    "ElfFile",
    "Frame",
    "FuncRole",
    "Function",
    "GoBinary",
    "GoTableError",
    "GoVersion",
    "Module",
    "NotGoError",
    "RuntimeLayout",
    "Section",
    "Segment",
    "StructLayout",
    "SymbolizerError",
    "UnsupportedElf",
    "UnsupportedGoVersion",
    "layout_for",
    "read_build_info",
]
