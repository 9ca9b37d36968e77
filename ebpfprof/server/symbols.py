"""The names of a process's functions by address."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ebpfprof.errors import EbpfprofError
from ebpfprof.export.go_quotes import shortened
from ebpfprof.process.process import Target
from ebpfprof.system.closing import Closing
from symbolizer import ElfFile, GoBinary, SymbolizerError


class Symbols(Closing):
    """The functions of one Go process. Holds its executable open; a context manager."""

    def __init__(self, pid: int) -> None:
        """Read the tables of process `pid`; those of a program that is not Go's stay empty."""
        self._elf: ElfFile | None = None
        self._binary: GoBinary | None = None
        self._bias = 0
        try:
            with Target(pid) as target:
                self._elf = target.open_elf()
                self._binary = GoBinary.open(self._elf, allow_unknown_version=True)
                self._bias = target.load_bias(self._elf.entry)
        except (EbpfprofError, SymbolizerError, struct.error, OSError):
            self._binary = None

    @property
    def type_argument_lists(self) -> int:
        """How many lists of type arguments this version of Go writes as "[...]" in texts."""
        return self._binary.layout.tracebacks.shortened_type_arguments if self._binary else 0

    def names(self, pcs: Iterable[int]) -> dict[int, str]:
        """The functions at addresses, where there is one: the innermost of inlined ones.

        As runtime.FuncForPC. One call for many addresses is ten times as fast as a call for each.
        """
        by_linked = {pc - self._bias: pc for pc in pcs}
        try:
            found = self._binary.frames_many(by_linked) if self._binary else {}
        except SymbolizerError:
            return {}
        lists = self.type_argument_lists
        return {
            by_linked[at]: shortened(frames[0].function, lists)
            for at, frames in found.items()
            if frames
        }

    def offset(self, pc: int) -> int | None:
        """How many bytes behind the beginning of its function an address lies; None if unknown."""
        try:
            function = self._binary.function_at(pc - self._bias) if self._binary else None
        except SymbolizerError:
            return None
        return pc - self._bias - function.entry if function else None

    def close(self) -> None:
        """Close the executable."""
        self._binary = None
        if self._elf is not None:
            self._elf.close()
