"""The target `frames` as bytes, for tests that change a copy of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from symbolizer import ElfFile, Function, GoBinary
from symbolizer.elf.relocations import RelocatedWords
from symbolizer.go.moduledata import find_moduledata
from symbolizer.go.pclntab import find_pclntab
from tests.programs import saved
from tests.programs.saved import NEWEST

FRAMES: Final = Path(__file__).resolve().parents[2] / "targets" / "frames"


def program(minor: str = NEWEST, mode: str = "plain") -> bytes:
    """The target's file. Tests change copies of it."""
    return saved.program("frames", minor, mode)


def binary(minor: str = NEWEST, mode: str = "plain") -> GoBinary:
    return saved.binary("frames", minor, mode)


def only(found: GoBinary, name: str) -> Function:
    (function,) = found.functions_named(name)
    return function


def module_vaddr(elf: ElfFile) -> int:
    """Address of runtime.firstmoduledata, as linked."""
    return find_moduledata(elf, find_pclntab(elf), RelocatedWords(elf)).vaddr


def without_values_in_place(data: bytes) -> bytes:
    """As lld leaves it: words that the loader relocates are zero in the file."""
    elf = ElfFile.from_bytes(data)
    changed = bytearray(data)
    for vaddr in RelocatedWords(elf)._load()[0].tolist():
        offset = elf.vaddr_to_offset(vaddr)
        changed[offset : offset + 8] = bytes(8)
    assert changed != data
    return bytes(changed)
