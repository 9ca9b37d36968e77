"""Files, lines and inlined calls of native code, from DWARF of gcc, clang, rustc and Go.

pyelftools is not used: it keeps an object for each entry that it passes, and trusts each
size. Here a lookup reads the entries and the line programs of the units that have its addresses,
keeps only the answers, and counts its work.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from symbolizer.dwarf.inline import Functions, attributes_of_code
from symbolizer.dwarf.lines import LineProgram, find_lines, line_program
from symbolizer.dwarf.ranges import UnitRanges
from symbolizer.dwarf.sections import has_dwarf
from symbolizer.dwarf.units import Unit, Units
from symbolizer.dwarf.work import Work
from symbolizer.elf.file import ElfFile
from symbolizer.errors import SymbolizerError

_MAX_LINE = (1 << 31) - 1
"""A file may claim any number; profiles store 32 bits."""

_MAX_WORK = 30_000_000
"""Entries, attributes, ranges and rows of lines read for one lookup: some half a minute."""


@dataclass(frozen=True, slots=True)
class NativeFrame:
    """A function, and where in it. "" and 0 where the DWARF has no value.

    `function` is the linkage name (mangled) if there is one. `start_line` is its declaration's.
    """

    function: str
    file: str
    line: int
    start_line: int


class NativeLines:
    """The DWARF of one file, which the caller closes."""

    def __init__(self, elf: ElfFile) -> None:
        """Find the units. Raises DwarfError, ElfError."""
        self._units = Units(elf, attributes_of_code, Work(elf, _MAX_WORK))
        self._functions = Functions(self._units)
        self._ranges: UnitRanges | None = None
        self.failure: SymbolizerError | None = None
        """The error that made some lines unavailable, if a part of the DWARF is corrupt."""
        self.decoded_bytes = 0
        """Bytes of line programs decoded so far."""

    @classmethod
    def open(cls, elf: ElfFile) -> Self | None:
        """Return the lines of a file, None if it has no DWARF. Raises DwarfError, ElfError."""
        return cls(elf) if has_dwarf(elf) else None

    def frames(self, vaddrs: Collection[int]) -> dict[int, tuple[NativeFrame, ...]]:
        """Return the logical frames at each address, as linked, innermost inlined call first.

        () where the DWARF has none. A corrupt unit only loses its own frames; `failure` is the
        error then. Raises DwarfError, ElfError if all of the DWARF is unreadable.
        """
        self._units.work.renew()
        if self._ranges is None:
            self._ranges = UnitRanges(self._units)
            self.failure = self.failure or self._ranges.failure
        frames: dict[int, tuple[NativeFrame, ...]] = {}
        by_start = dict(zip(self._units.starts, self._units.all, strict=True))
        left = {address: self._ranges.units_of(address) for address in sorted(set(vaddrs))}
        while left:
            wanted: dict[int, list[int]] = {}
            for address, starts in left.items():
                if starts:
                    wanted.setdefault(starts.pop(0), []).append(address)
            if not wanted:
                break
            for start, addresses in wanted.items():
                try:
                    frames |= self._unit(by_start[start], addresses)
                except SymbolizerError as error:
                    self.failure = self.failure or error
            left = {address: starts for address, starts in left.items() if address not in frames}
        return {address: frames.get(address, ()) for address in vaddrs}

    def _unit(self, unit: Unit, wanted: list[int]) -> dict[int, tuple[NativeFrame, ...]]:
        self._units.open(unit)
        program: LineProgram | None = None
        lines: dict[int, tuple[int, int]] = {}
        try:
            program = line_program(self._units, unit)
            if program is not None:
                self.decoded_bytes += len(program.code)
                lines = find_lines(self._units, program, wanted)
        except SymbolizerError as error:
            self.failure = self.failure or error
        chains = self._functions.chains(unit, wanted)
        paths: dict[int, str] = {}

        def path(number: int) -> str:
            if number not in paths:
                paths[number] = program.path(number) if program is not None else ""
            return paths[number]

        by_address: dict[int, tuple[NativeFrame, ...]] = {}
        for address in wanted:
            file, line = lines.get(address, (-1, 0))
            frames = []
            for call in reversed(chains.get(address, [])):
                name, start_line = self._functions.named(call)
                frames.append(NativeFrame(name, path(file), _line(line), _line(start_line)))
                file, line = call.call_file, call.call_line
            if not frames and _line(line):
                frames.append(NativeFrame("", path(file), line, 0))
            if frames:
                by_address[address] = tuple(frames)
        return by_address


def _line(number: int) -> int:
    """Return the number, or 0 (unknown) if no real line can have it."""
    return number if 0 <= number <= _MAX_LINE else 0
