"""Abbreviations (.debug_abbrev, DWARF 2 to 5): the layout of the entries of a unit.

An abbreviation becomes a list of steps. Attributes that the caller does not want are skipped,
neighbours of fixed size in one step.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import NamedTuple

from symbolizer.dwarf.forms import (
    BLOCKS,
    ELSEWHERE,
    FORM_DATA8,
    FORM_IMPLICIT_CONST,
    FORM_REF_ADDR,
    FORM_STRING,
    FORMS,
    SIZES,
    ULEBS,
    DwarfError,
    sleb,
    uleb,
)
from symbolizer.dwarf.work import Work

SKIP, SKIP_STRING, SKIP_ULEB, SKIP_BLOCK, UNKNOWN, READ = range(6)

_MAX_ABBREVS = 1 << 14
_SPEC_BYTES = 256  # of an attribute of an abbreviation: in two lists of steps

Wanted = Callable[[int], Set[int]]
"""Returns which attributes (DW_AT_*) to read of entries with a tag (DW_TAG_*)."""


class Step(NamedTuple):
    """How to handle the next bytes of an entry: SKIP `size` bytes, ..., or READ an attribute."""

    op: int
    size: int
    attribute: int = 0
    form: int = 0
    constant: int = 0


@dataclass(frozen=True, slots=True)
class Abbrev:
    """The layout of an entry. `fixed` is its size in bytes if it is skipped as a whole, else -1.

    `reads`: whether any attribute is read. `skips` are the steps that read none.
    """

    tag: int
    has_children: bool
    steps: tuple[Step, ...]
    skips: tuple[Step, ...]
    fixed: int
    reads: bool


class AbbrevTable:
    """The abbreviations of a unit, read as far as they are needed: most units are never entered."""

    def __init__(
        self, data: bytes, position: int, version: int, wanted: Wanted, work: Work
    ) -> None:
        self._data = data
        self._at = position
        self._version = version
        self._wanted = wanted
        self._work = work
        self._is_done = False
        self.known: dict[int, Abbrev] = {}

    def find(self, number: int) -> Abbrev | None:
        """Return the abbreviation of that number, None if there is none. Raises DwarfError."""
        while number not in self.known and not self._is_done and len(self.known) < _MAX_ABBREVS:
            code, position = uleb(self._data, self._at)
            if code == 0:
                self._is_done = True
                break
            abbrev, self._at = self._read(position)
            self.known.setdefault(code, abbrev)
        return self.known.get(number)

    def get(self, number: int) -> Abbrev:
        """Return the abbreviation of that number. Raises DwarfError if there is none."""
        abbrev = self.find(number)
        if abbrev is None:
            raise DwarfError(f"there is no abbreviation {number}")
        return abbrev

    def _read(self, position: int) -> tuple[Abbrev, int]:
        """Return the abbreviation whose code ends at an offset, and the offset behind it."""
        data = self._data
        tag, position = uleb(data, position)
        has_children = data[position : position + 1] == b"\1"
        position += 1
        specs: list[tuple[int, int, int]] = []
        while True:
            attribute, position = uleb(data, position)
            form, position = uleb(data, position)
            constant = 0
            if form == FORM_IMPLICIT_CONST:
                constant, position = sleb(data, position)
            self._work.spend(1)
            self._work.keep(1, _SPEC_BYTES)
            if not attribute and not form:
                break
            if form == FORM_REF_ADDR and self._version == 2:
                form = FORM_DATA8
            specs.append((attribute, form, constant))
        steps, skips = _steps(specs, self._wanted(tag)), _steps(specs, frozenset())
        reads = any(step.op == READ for step in steps)
        is_fixed = not reads and all(step.op == SKIP for step in skips)
        fixed = sum(step.size for step in skips) if is_fixed else -1
        return Abbrev(tag, has_children, steps, skips, fixed, reads), position


def skip(data: bytes, position: int, op: int, size: int) -> int:
    """Return the offset behind a value that is not read. Raises DwarfError, IndexError."""
    if op == SKIP:
        return position + size
    if op == SKIP_ULEB:
        while data[position] >= 0x80:
            position += 1
        return position + 1
    if op == SKIP_STRING:
        end = data.find(0, position)
        if end < 0:
            raise DwarfError("a name does not end")
        return end + 1
    if op == UNKNOWN:
        raise DwarfError("an entry has a value of unknown form")
    if size:
        length = int.from_bytes(data[position : position + size], "little")
        return position + size + length
    length, position = uleb(data, position)
    return position + length


def _steps(specs: list[tuple[int, int, int]], wanted: Set[int]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for attribute, form, constant in specs:
        size = SIZES.get(form)
        can_read = (form in FORMS or form == FORM_IMPLICIT_CONST) and form not in ELSEWHERE
        if attribute in wanted and can_read:
            steps.append(Step(READ, 0, attribute, form, constant))
        elif size is not None:
            if steps and steps[-1].op == SKIP:
                size += steps.pop().size
            steps.append(Step(SKIP, size))
        elif form in ULEBS:
            steps.append(Step(SKIP_ULEB, 0))
        elif form == FORM_STRING:
            steps.append(Step(SKIP_STRING, 0))
        elif form in BLOCKS:
            steps.append(Step(SKIP_BLOCK, BLOCKS[form]))
        else:
            # Reading fails once an entry has it, not for the unit's other abbreviations.
            steps.append(Step(UNKNOWN, 0))
    return tuple(steps)
