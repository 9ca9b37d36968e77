"""The C of bpf/, compiled for this machine and called from a test, on memory made up there.

What it gets of BCC and the kernel is in bcc.h beside this file.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ebpfprof.kernel.sources import bpf_folder
from ebpfprof.process.memory import Memory, UnreadableMemory

Piece = tuple[int, bytes]
"""An address in a target, and what lies there."""


def build(folder: Path, text: str, macros: Mapping[str, int] | None = None) -> Path:
    """Compile C that includes files of bpf/, with these macros, to a library in the folder."""
    (folder / "program.c").write_text('#include "bcc.h"\n' + text)
    includes = [Path(__file__).parent, bpf_folder(), bpf_folder() / "headers" / "include"]
    subprocess.run(
        ["gcc", "-std=gnu17", "-shared", "-fPIC", "-O1", "-o", "program.so", "program.c"]
        + [f"-I{include}" for include in includes]
        + [f"-D{name}={value}" for name, value in (macros or {}).items()],
        cwd=folder,
        check=True,
    )
    return folder / "program.so"


class Native:
    """A library that build() made."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._kept: list[Any] = []

    def call(self, function: str, *arguments: Any) -> int:  # noqa: ANN401 - what C takes
        """Call a function that returns a u64; whole numbers go as u64, arrays by address."""
        called = getattr(self._library, function)
        called.restype = ctypes.c_uint64
        return int(called(*map(_as_c, arguments)))

    def set_memory(self, pieces: Sequence[Piece]) -> None:
        """Make these pieces the memory that read_user finds; all else can't be read."""
        buffers = [np.frombuffer(data + b"\0", np.uint8) for _, data in pieces]
        table = np.array(
            [
                (start, len(data), buffer.ctypes.data)
                for (start, data), buffer in zip(pieces, buffers, strict=True)
            ],
            [("start", "<u8"), ("size_bytes", "<u8"), ("bytes", "<u8")],
        )
        self._kept = buffers
        self.call("set_memory", table, len(pieces))

    def last_record(self) -> bytes:
        """The last record in the ring buffer."""
        size_bytes = np.zeros(1, np.uint64)
        return ctypes.string_at(self.call("last_record", size_bytes), int(size_bytes[0]))


def _as_c(argument: Any) -> Any:  # noqa: ANN401 - what C takes
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_uint64(argument)


class PiecesMemory(Memory):
    """The same pieces as the memory of a target."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces

    def read(self, address: int, size: int) -> bytes:
        """Return what lies there. Raises UnreadableMemory unless all of it is in one piece."""
        if size == 0:
            return b""
        for start, data in self._pieces:
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise UnreadableMemory(f"There are no {size} bytes at {address:#x}.")

    def bring(self, address: int, size: int) -> None:
        """Nothing is elsewhere."""
