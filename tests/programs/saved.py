"""Saved programs: targets as the newest Go links them, for tests that only read a program's file.

One file has all of them, as they have much in common. It is compressed by LZMA and begins with a
line of JSON. The programs are linked without debug information. The code of packages that we do not
analyse is zeros, and so are the symbols of all programs but one (tests/programs/record.py).

With EBPFPROF_REAL_PROGRAMS set, as in the full run, the targets are built instead.
"""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from symbolizer import ElfFile, GoBinary
from tests.toolchains import MINORS, toolchain

TARGETS: Final = Path(__file__).resolve().parents[1] / "targets"
NEWEST: Final = MINORS[-1]
FILE: Final = Path(__file__).parent / "data" / f"{NEWEST}.xz"
SAVED: Final = (
    *(("frames", "plain"), ("frames", "pie")),
    *(("blockops", "plain"), ("oncall", "plain"), ("stuck", "plain")),
)
"""Name and build mode of the programs that are saved."""
_FILTERS: Final = [
    {"id": lzma.FILTER_X86},
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME},
]


@cache
def program(name: str, minor: str = NEWEST, mode: str = "plain") -> bytes:
    """The file of a target; it is built if it is not saved. Raises ToolchainError."""
    is_saved = minor == NEWEST and (name, mode) in SAVED
    if is_saved and not os.environ.get("EBPFPROF_REAL_PROGRAMS"):
        return saved()[name, mode]
    return toolchain(minor).build(TARGETS / name, mode).read_bytes()


@cache
def binary(name: str, minor: str = NEWEST, mode: str = "plain") -> GoBinary:
    """The same as a Go program, which stays open."""
    return GoBinary.open(ElfFile.from_bytes(program(name, minor, mode)))


def save(programs: Mapping[tuple[str, str], bytes]) -> None:
    """Write the file."""
    sizes = [[*build, len(data)] for build, data in programs.items()]
    content = json.dumps(sizes).encode() + b"\n" + b"".join(programs.values())
    FILE.write_bytes(lzma.compress(content, format=lzma.FORMAT_XZ, filters=_FILTERS))


@cache
def saved() -> Mapping[tuple[str, str], bytes]:
    """The saved programs, by name and build mode."""
    line, _, data = lzma.decompress(FILE.read_bytes()).partition(b"\n")
    programs, start = {}, 0
    for name, mode, size in json.loads(line):
        programs[name, mode] = data[start : start + size]
        start += size
    return programs
