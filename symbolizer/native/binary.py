"""Frames of native code: names from symbols, lines and inlined calls from DWARF."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from symbolizer.elf.file import ElfFile
from symbolizer.elf.symbols import SymbolTable
from symbolizer.errors import SymbolizerError, TooMuchToRead
from symbolizer.frames import Frame, FuncRole
from symbolizer.native.demangle import demangled

if TYPE_CHECKING:
    from symbolizer.native.lines import NativeFrame, NativeLines


class NativeBinary:
    """One ELF file with its separate debug file; tables are read when they are needed.

    The caller closes both files. One thread at a time may use it.
    """

    def __init__(self, elf: ElfFile, debug: ElfFile | None = None) -> None:
        self._elf = elf
        self._debug = debug
        self._is_open = False
        self._symbols: SymbolTable | None = None
        self._lines: NativeLines | None = None
        self.failure: SymbolizerError | None = None
        """The error that made some names or lines unavailable, if a table is corrupt."""
        self.gave_up = False
        """Whether some are unavailable because they would exceed the allowance."""

    def frames_many(self, vaddrs: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
        """Return the logical frames at each address, as linked, innermost inlined call first.

        For a return address pass the address minus 1. () where there are none. Names are
        demangled. A corrupt table only loses its own names or lines. Raises TooMuchToRead.
        """
        with self._elf.allowance:
            return self._frames_many(set(vaddrs))

    def _frames_many(self, wanted: set[int]) -> dict[int, tuple[Frame, ...]]:
        self._open()
        lines: dict[int, tuple[NativeFrame, ...]] = {}
        if self._lines:
            try:
                lines = self._lines.frames(wanted)
            except SymbolizerError as error:
                self._note(error)
            self._note(self._lines.failure)
        return {vaddr: self._frames(vaddr, lines.get(vaddr, ())) for vaddr in wanted}

    def _note(self, failure: SymbolizerError | None) -> None:
        if isinstance(failure, TooMuchToRead):
            self.gave_up = True
        else:
            self.failure = self.failure or failure

    def _open(self) -> None:
        if self._is_open:
            return
        from symbolizer.native.lines import NativeLines

        self._is_open = True
        for debug in (self._debug, None):
            try:
                self._symbols = self._symbols or SymbolTable.open(self._elf, debug)
            except SymbolizerError as error:
                self._note(error)
        for file in (self._elf, self._debug):
            try:
                if file and self._lines is None:
                    self._lines = NativeLines.open(file)
            except SymbolizerError as error:
                self._note(error)

    def _frames(self, vaddr: int, known: "tuple[NativeFrame, ...]") -> tuple[Frame, ...]:
        symbol = self._symbols.at(vaddr) if self._symbols else None
        name = demangled(symbol.name) if symbol else ""
        if not known:
            return (_frame(name, "", 0, 0, vaddr),) if name else ()
        *inlined, physical = known
        frames = [
            _frame(
                demangled(frame.function) or "?", frame.file, frame.line, frame.start_line, vaddr
            )
            for frame in inlined
        ]
        function = demangled(physical.function) or name or "?"
        if function == physical.function and symbol and symbol.name != name:
            function = name  # gcc gives static functions no linkage name, so no namespace
        frames.append(_frame(function, physical.file, physical.line, physical.start_line, vaddr))
        return tuple(frames)


def _frame(function: str, file: str, line: int, start_line: int, vaddr: int) -> Frame:
    return Frame(function, file, line, start_line, FuncRole.NORMAL, vaddr)
