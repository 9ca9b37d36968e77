"""The target `locks`: the locks that it prints, and its file with DWARF that tests can change."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from symbolizer import ElfFile, GoBinary
from symbolizer.dwarf.sections import dwarf_section
from symbolizer.locks.names import Caller
from tests.targets_run import Target
from tests.toolchains import MINORS, toolchain

LOCKS: Final = Path(__file__).resolve().parents[3] / "targets" / "locks"
NEWEST: Final = MINORS[-1]
SHF_COMPRESSED: Final = 0x800


@dataclass(frozen=True)
class Said:
    """The output of the target. Addresses are as linked; "" stands for no name."""

    variables: dict[str, int]
    elsewhere: tuple[int, ...]
    """Addresses of locks on the heap."""
    callers: tuple[tuple[Caller, str, str], ...]
    """Function, kind of lock, name."""


def path(minor: str, mode: str) -> Path:
    return toolchain(minor).build(LOCKS, mode)


@cache
def binary(minor: str, mode: str) -> GoBinary:
    return GoBinary.open(ElfFile.open(path(minor, mode)))


@cache
def said(minor: str, mode: str) -> Said:
    program = binary(minor, mode)
    with Target.start(path(minor, mode)) as target:
        lines = [line.split(" ") for line in target.output]
    (main,) = (int(words[1], 16) for words in lines if words[0] == "function")
    (function,) = program.functions_named("main.main")
    bias = main - function.entry
    places = [(int(w[1], 16) - bias, w[2]) for w in lines if w[0] == "variable"]
    callers = []
    for words in lines:
        if words[0] == "caller":
            pc = int(words[1], 16) - bias - 1
            caller = Caller(program.frames(pc)[0].function, pc)
            callers.append((caller, words[2], words[3].replace("-", "")))
    return Said(
        variables={name: address for address, name in places if name != "-"},
        elsewhere=tuple(address for address, name in places if name == "-"),
        callers=tuple(callers),
    )


@cache
def uncompressed(minor: str, mode: str = "plain") -> bytes:
    """The file with uncompressed .debug_info and .debug_abbrev."""
    data = bytearray(path(minor, mode).read_bytes())
    elf = ElfFile.from_bytes(bytes(data))
    contents = {f".{name}": dwarf_section(elf, name) for name in ("debug_info", "debug_abbrev")}
    shoff, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for name, content in contents.items():
        section = elf.sections[name]
        for at in range(shoff, shoff + 64 * count, 64):
            if struct.unpack_from("<Q", data, at + 24)[0] == section.offset:
                struct.pack_into("<Q", data, at + 8, section.flags & ~SHF_COMPRESSED)
                struct.pack_into("<QQ", data, at + 24, len(data), len(content))
        data += content
    return bytes(data)
