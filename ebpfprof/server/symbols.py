"""The names of a process's functions by address."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from ebpfprof.errors import EbpfprofError
from ebpfprof.export.go_quotes import shortened
from symbolizer import GoBinary, SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.open_processes import OpenProcesses


@contextmanager
def symbols_of(processes: OpenProcesses, pid: int) -> Iterator[Symbols]:
    """The functions of process `pid`: none if it runs no Go program, or has ended."""
    binary, bias = None, 0
    with ExitStack() as held:
        with suppress(EbpfprofError, SymbolizerError, struct.error, OSError):  # then none
            process = held.enter_context(processes.open(pid))
            bias = process.load_bias(any_version=True)
            binary = process.binary(any_version=True)
        yield Symbols(binary, bias)


class Symbols:
    """The functions of one process, by runtime addresses."""

    def __init__(self, binary: GoBinary | None, load_bias: int) -> None:
        """Those of a program that was loaded `load_bias` bytes higher; None: of none."""
        self._binary, self._bias = binary, load_bias

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
            names = self._binary.frames_many(by_linked) if self._binary else {}
        except SymbolizerError:
            return {}
        lists = self.type_argument_lists
        return {
            by_linked[at]: shortened(frames[0].function, lists)
            for at, frames in names.items()
            if frames
        }

    def offset(self, pc: int) -> int | None:
        """How many bytes behind the beginning of its function an address lies; None if unknown."""
        try:
            function = self._binary.function_at(pc - self._bias) if self._binary else None
        except SymbolizerError:
            return None
        return pc - self._bias - function.entry if function else None
