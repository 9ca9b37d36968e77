"""Abbreviations (.debug_abbrev, DWARF 2 to 5): what the entries of a unit look like.

An abbreviation becomes a list of steps: what nobody asks for is stepped over, neighbours of fixed
size at once.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from symbolizer.dwarf.forms import FORM_IMPLICIT_CONST, FORM_STRING, FORMS, DwarfError, sleb, uleb
from symbolizer.elf.file import ElfFile

AT_SIBLING: Final = 0x01
AT_NAME: Final = 0x03
AT_STMT_LIST: Final = 0x10
AT_LOW_PC: Final = 0x11
AT_HIGH_PC: Final = 0x12
AT_COMP_DIR: Final = 0x1B
AT_ABSTRACT_ORIGIN: Final = 0x31
AT_DECL_LINE: Final = 0x3B
AT_SPECIFICATION: Final = 0x47
AT_RANGES: Final = 0x55
AT_CALL_FILE: Final = 0x58
AT_CALL_LINE: Final = 0x59
AT_LINKAGE_NAME: Final = 0x6E
AT_STR_OFFSETS_BASE: Final = 0x72
AT_ADDR_BASE: Final = 0x73
AT_RNGLISTS_BASE: Final = 0x74
AT_MIPS_LINKAGE_NAME: Final = 0x2007
_WANTED = {AT_NAME, AT_STMT_LIST, AT_LOW_PC, AT_HIGH_PC, AT_COMP_DIR, AT_ABSTRACT_ORIGIN}
_WANTED |= {AT_DECL_LINE, AT_SPECIFICATION, AT_RANGES, AT_CALL_FILE, AT_CALL_LINE, AT_SIBLING}
_WANTED |= {AT_LINKAGE_NAME, AT_MIPS_LINKAGE_NAME}
_WANTED |= {AT_STR_OFFSETS_BASE, AT_ADDR_BASE, AT_RNGLISTS_BASE}

_SIBLING = {AT_SIBLING}

TAG_INLINED: Final = 0x1D
TAG_SUBPROGRAM: Final = 0x2E
_TAG_COMPILE_UNIT, _TAG_PARTIAL_UNIT, _TAG_SKELETON_UNIT = 0x11, 0x3C, 0x4A
_READ_TAGS = (TAG_INLINED, TAG_SUBPROGRAM, _TAG_COMPILE_UNIT, _TAG_PARTIAL_UNIT, _TAG_SKELETON_UNIT)
TYPE_TAGS: Final = frozenset((0x01, 0x02, 0x04, 0x13, 0x15, 0x17, 0x38))
"""Types with children: entries of code are never among them."""

_FORM_REF_ADDR, _FORM_DATA8 = 0x10, 0x07
# References into another file, which dwz and -gsplit-dwarf write: nothing is found behind them.
_ELSEWHERE_SIZES = {0x1F20: 4, 0x1F21: 4, 0x1C: 4, 0x1D: 4}
_ELSEWHERE_ULEBS = frozenset((0x1F01, 0x1F02))

_SIZES = dict.fromkeys((0x0B, 0x0C, 0x11, 0x25, 0x29), 1)
_SIZES |= dict.fromkeys((0x05, 0x12, 0x26, 0x2A), 2) | {0x27: 3, 0x2B: 3}
_SIZES |= dict.fromkeys((0x06, 0x0E, 0x10, 0x13, 0x17, 0x1F, 0x28, 0x2C), 4)
_SIZES |= dict.fromkeys((0x01, 0x07, 0x14, 0x20, 0x24), 8)
_SIZES |= {0x1E: 16, 0x19: 0, FORM_IMPLICIT_CONST: 0} | _ELSEWHERE_SIZES
_ULEBS = frozenset((0x0D, 0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23)) | _ELSEWHERE_ULEBS
_BLOCKS = {0x0A: 1, 0x03: 2, 0x04: 4, 0x09: 0, 0x18: 0}

SKIP, SKIP_STRING, SKIP_ULEB, SKIP_BLOCK, READ = range(5)

_MAX_ABBREVS = 1 << 14
_CHECK_AFTER = 1 << 12
_SPEC_BYTES = 256  # of an attribute of an abbreviation: in two lists of steps
_MAX_WORK = 30_000_000
"""Entries, attributes, ranges and rows of lines read for one question: some half a minute."""


class Step(NamedTuple):
    """What to do with the next bytes of an entry: SKIP `size` bytes, ..., or READ an attribute."""

    op: int
    size: int
    attribute: int = 0
    form: int = 0
    constant: int = 0


@dataclass(frozen=True, slots=True)
class Abbrev:
    """What an entry looks like. `fixed` is its size if nothing of it is read, else -1.

    `reads` says whether anything of it is read; `skips` are the steps that read nothing.
    """

    tag: int
    has_children: bool
    steps: tuple[Step, ...]
    skips: tuple[Step, ...]
    fixed: int
    reads: bool


class Work:
    """Counts what a question costs, so that a hostile file cannot make it cost any amount."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._left = _MAX_WORK
        self._unchecked = 0

    def renew(self) -> None:
        """Begin another question."""
        self._left = _MAX_WORK

    def spend(self, amount: int) -> None:
        """Raises DwarfError if the question has cost too much, TooMuchToRead if all have."""
        self._left -= amount
        if self._left < 0:
            raise DwarfError("the DWARF has more to read than any question needs")
        self._unchecked += amount
        if self._unchecked >= _CHECK_AFTER:
            self._unchecked = 0
            self._elf.allowance.check()

    def keep(self, count: int, size_bytes: int) -> None:
        """Count that so many things of a size are kept of the file. Raises TooMuchToRead."""
        self._elf.keep(count * size_bytes)


class AbbrevTable:
    """Abbreviations, read as far as they are needed: units are many, and most are not entered."""

    def __init__(self, data: bytes, at: int, version: int, work: Work) -> None:
        self._data = data
        self._at = at
        self._version = version
        self._work = work
        self._is_done = False
        self.known: dict[int, Abbrev] = {}

    def get(self, wanted: int) -> Abbrev:
        """Raises DwarfError if there is none of that number."""
        data = self._data
        while wanted not in self.known and not self._is_done and len(self.known) < _MAX_ABBREVS:
            code, at = uleb(data, self._at)
            if code == 0:
                self._is_done = True
                break
            tag, at = uleb(data, at)
            has_children = data[at : at + 1] == b"\1"
            at += 1
            specs: list[tuple[int, int, int]] = []
            while True:
                attribute, at = uleb(data, at)
                form, at = uleb(data, at)
                constant = 0
                if form == FORM_IMPLICIT_CONST:
                    constant, at = sleb(data, at)
                if not attribute and not form:
                    break
                if form == _FORM_REF_ADDR and self._version == 2:
                    form = _FORM_DATA8
                self._work.spend(1)
                self._work.keep(1, _SPEC_BYTES)
                specs.append((attribute, form, constant))
            self._work.spend(1)
            self._work.keep(1, _SPEC_BYTES)
            self._at = at
            self.known.setdefault(code, _abbrev(tag, has_children, specs))
        abbrev = self.known.get(wanted)
        if abbrev is None:
            raise DwarfError(f"there is no abbreviation {wanted}")
        return abbrev


def skip(data: bytes, at: int, op: int, size: int) -> int:
    """Return the offset behind a value that nobody asks for. Raises DwarfError, IndexError."""
    if op == SKIP:
        return at + size
    if op == SKIP_ULEB:
        while data[at] >= 0x80:
            at += 1
        return at + 1
    if op == SKIP_STRING:
        end = data.find(0, at)
        if end < 0:
            raise DwarfError("a name does not end")
        return end + 1
    if size:
        length = int.from_bytes(data[at : at + size], "little")
        return at + size + length
    length, at = uleb(data, at)
    return at + length


def _abbrev(tag: int, has_children: bool, specs: list[tuple[int, int, int]]) -> Abbrev:
    wanted = _WANTED if tag in _READ_TAGS else _SIBLING if tag in TYPE_TAGS else set()
    steps = _steps(specs, wanted)
    skips = _steps(specs, set())
    reads = any(step.op == READ for step in steps)
    is_fixed = not reads and all(step.op == SKIP for step in skips)
    fixed = sum(step.size for step in skips) if is_fixed else -1
    return Abbrev(tag, has_children, steps, skips, fixed, reads)


def _steps(specs: list[tuple[int, int, int]], wanted: set[int]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for attribute, form, constant in specs:
        size = _SIZES.get(form)
        can_read = form in FORMS or form == FORM_IMPLICIT_CONST
        if attribute in wanted and can_read and form not in _ELSEWHERE_SIZES:
            steps.append(Step(READ, 0, attribute, form, constant))
        elif size is not None:
            if steps and steps[-1].op == SKIP:
                size += steps.pop().size
            steps.append(Step(SKIP, size))
        elif form in _ULEBS:
            steps.append(Step(SKIP_ULEB, 0))
        elif form == FORM_STRING:
            steps.append(Step(SKIP_STRING, 0))
        elif form in _BLOCKS:
            steps.append(Step(SKIP_BLOCK, _BLOCKS[form]))
        else:
            raise DwarfError(f"an abbreviation has a value of unknown form {form:#x}")
    return tuple(steps)
