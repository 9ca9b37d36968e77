"""All that can be learned from the bytes of a Go program's ELF file.

    with ElfFile.open("/usr/bin/program") as elf:
        program = GoBinary.open(elf)
        for frame in program.frames(0x4a2c01):
            print(frame.function, frame.file, frame.line)

Bytes in, frozen dataclasses out. No byte of a file is trusted: an answer is right, or a
SymbolizerError is raised.
"""

from symbolizer.elf.file import ElfFile, Section, Segment
from symbolizer.errors import (
    ElfError,
    GoTableError,
    NotGoError,
    ObfuscatedProgram,
    OtherCompiler,
    PackedProgram,
    SymbolizerError,
    UnsupportedElf,
    UnsupportedGoVersion,
)
from symbolizer.frames import Frame, FuncRole
from symbolizer.go.binary import Function, GoBinary
from symbolizer.go.buildinfo import BuildInfo, read_build_info
from symbolizer.go.other_makers import other_compiler
from symbolizer.go.runtime_layout import RuntimeLayout, layout_for
from symbolizer.go.version import GoVersion

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
    "NotGoError",
    "ObfuscatedProgram",
    "OtherCompiler",
    "PackedProgram",
    "RuntimeLayout",
    "Section",
    "Segment",
    "SymbolizerError",
    "UnsupportedElf",
    "UnsupportedGoVersion",
    "layout_for",
    "other_compiler",
    "read_build_info",
]
