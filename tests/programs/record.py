"""Saves the programs again, without what no test reads of them.

    python -m tests.programs.record

Needs the newest Go. Then the tests that read them must pass: pytest -m fast tests/unit tests/fuzz.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from symbolizer import ElfFile, GoBinary
from tests.programs.saved import FILE, NEWEST, SAVED, TARGETS, save
from tests.toolchains import MODES, toolchain

_ANALYSED: Final = (
    "_.",
    "internal/runtime",
    "internal/sync",
    "main",
    "runtime",
    "sync",
    "syscall",
    "time",
)
_WHOLE: Final = ("frames", "plain")
_SYMBOLS: Final = (".symtab", ".strtab")


def linked(name: str, mode: str) -> bytes:
    """A target, without debug information and without names of this machine."""
    flags = MODES[mode].arguments
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        fixed = ("-trimpath", "-buildvcs=false", "-ldflags=-w")
        source = TARGETS / name
        toolchain(NEWEST).go("build", *fixed, *flags, "-o", path, ".", cwd=source)
        return path.read_bytes()


def reduced(data: bytes) -> bytes:
    """The same with zeros for symbols, and for the code of packages that we do not analyse."""
    changed = bytearray(data)
    elf = ElfFile.from_bytes(data)
    unwanted = [(elf.sections[name].offset, elf.sections[name].size) for name in _SYMBOLS]
    unwanted += [
        (elf.vaddr_to_offset(function.entry), function.end - function.entry)
        for function in GoBinary.open(elf).functions()
        if not function.name.startswith(_ANALYSED)
    ]
    for start, size in unwanted:
        changed[start : start + size] = bytes(size)
    return bytes(changed)


def content(name: str, mode: str) -> bytes:
    """What is saved of a target."""
    data = linked(name, mode)
    return data if (name, mode) == _WHOLE else reduced(data)


def main() -> int:
    """Save the programs; print the size of the file in bytes."""
    save({build: content(*build) for build in SAVED})
    print(FILE.stat().st_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
