"""Line programs (.debug_line, DWARF 2 to 5): which line of which file an address belongs to.

A program is decoded when an address of its unit is looked up. Of its rows, only those with such an
address are kept.
"""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from symbolizer.allowance import Allowance
from symbolizer.dwarf.constants import AT_COMP_DIR, AT_STMT_LIST
from symbolizer.dwarf.forms import FORMS, DwarfError, sleb, uleb
from symbolizer.dwarf.units import Unit, Units

_MAX_PROGRAM_BYTES = 64 << 20
_PAUSE_BYTES = 1 << 18
_MAX_FILES = 1 << 16
_MAX_FORMATS = 16
_MAX_PATH_BYTES = 1 << 14
_CONTENT_PATH, _CONTENT_DIRECTORY = 1, 2
_ADDRESS_MASK = (1 << 64) - 1
# Linkers write 0 or 1 as the address of a function that they removed.
_FIRST_ADDRESS = 2


@dataclass(frozen=True, slots=True)
class LineProgram:
    """A unit's line program: its files, the parameters of its opcodes, and these (`code`)."""

    directories: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    """Name and number of the directory, by file number."""
    comp_dir: str
    step: int
    line_base: int
    line_range: int
    operands: bytes
    code: bytes

    def path(self, number: int) -> str:
        """Return the full path of a file, "" if no file has that number."""
        if not 0 <= number < len(self.files):
            return ""
        name, directory = self.files[number]
        if name.startswith("/") or not name:
            return name
        if 0 <= directory < len(self.directories):
            name = _joined(self.directories[directory], name)
        return _joined(self.comp_dir, name)


def _joined(directory: str, name: str) -> str:
    return name if name.startswith("/") or not directory else f"{directory.rstrip('/')}/{name}"


def line_program(units: Units, unit: Unit) -> LineProgram | None:
    """Return a unit's program; None if it has none. Raises DwarfError, ElfError."""
    if AT_STMT_LIST not in unit.values:
        return None
    start = unit.number(AT_STMT_LIST)
    section = units.section("debug_line")
    head = section.read(start, 6)
    if len(head) < 6:
        raise DwarfError("a unit's line program lies outside its section")
    length, version = struct.unpack("<IH", head)
    if not 2 <= version <= 5 or not 16 <= length <= _MAX_PROGRAM_BYTES:
        raise DwarfError("a line program's header contradicts itself")
    data = section.read(start, 4 + length)
    if len(data) != 4 + length:
        raise DwarfError("a line program runs past the end of its section")
    try:
        return _parsed(units, unit, data, version)
    except (struct.error, IndexError) as error:
        raise DwarfError("a line program's header is cut off") from error


def _parsed(units: Units, unit: Unit, data: bytes, version: int) -> LineProgram:
    position = 8 if version >= 5 else 6
    (header_bytes,) = struct.unpack_from("<I", data, position)
    code_at = position + 4 + header_bytes
    # Then default_is_stmt, and from version 4 on operations per instruction (1 on x86).
    position += 4
    step, position = data[position], position + (3 if version >= 4 else 2)
    line_base, line_range, opcodes = struct.unpack_from("<bBB", data, position)
    if not line_range or not opcodes or code_at > len(data):
        raise DwarfError("a line program's header contradicts itself")
    position += 3
    operands = b"\0" + data[position : position + opcodes - 1]
    position += opcodes - 1
    comp_dir = ""
    if AT_COMP_DIR in unit.values:
        comp_dir = units.text(unit, *unit.values[AT_COMP_DIR])
    if version >= 5:
        entries, position = _entries(units, unit, data, position)
        directories = [name for name, _ in entries]
        files, position = _entries(units, unit, data, position)
    else:
        directories, files = _old_entries(units, data, position, comp_dir)
    return LineProgram(
        tuple(directories),
        tuple(files),
        comp_dir,
        step,
        line_base,
        line_range,
        operands,
        data[code_at:],
    )


def _entries(
    units: Units, unit: Unit, data: bytes, position: int
) -> tuple[list[tuple[str, int]], int]:
    """Return directories or files of version 5, and the offset behind them."""
    formats = []
    count, position = data[position], position + 1
    if count > _MAX_FORMATS:
        raise DwarfError("a line program's header contradicts itself")
    for _ in range(count):
        content, position = uleb(data, position)
        form, position = uleb(data, position)
        if form not in FORMS:
            raise DwarfError(f"a file's name has unknown form {form:#x}")
        formats.append((content, form))
    count, position = uleb(data, position)
    if count > _MAX_FILES:
        raise DwarfError("a line program has more files than any real one")
    units.work.spend(count * (len(formats) + 1))
    entries = []
    for _ in range(count):
        name, directory = "", 0
        for content, form in formats:
            value, position = FORMS[form](data, position, 0)
            if content == _CONTENT_PATH:
                name = units.text(unit, form, value)
            elif content == _CONTENT_DIRECTORY and isinstance(value, int):
                directory = value
        entries.append((name, directory))
    return entries, position


def _old_entries(
    units: Units, data: bytes, position: int, comp_dir: str
) -> tuple[list[str], list[tuple[str, int]]]:
    """Return directories and files of versions before 5: they count from 1."""
    directories = [comp_dir]
    files = [("", 0)]
    while data[position]:
        name, position = _string(data, position)
        directories.append(name)
        units.work.spend(1)
    position += 1
    while data[position]:
        name, position = _string(data, position)
        directory, position = uleb(data, position)
        _modified, position = uleb(data, position)
        _size, position = uleb(data, position)
        files.append((name, directory))
        units.work.spend(1)
    return directories, files


def _string(data: bytes, position: int) -> tuple[str, int]:
    end = data.find(b"\0", position, position + _MAX_PATH_BYTES)
    if end < 0:
        raise DwarfError("a name does not end")
    return data[position:end].decode("utf-8", "replace"), end + 1


class _Rows:
    """Finds the wanted addresses in the rows of a program."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self._wanted = wanted
        self.found: dict[int, tuple[int, int]] = {}

    def next(self, address: int) -> int:
        """Return the first wanted address from `address` on, or one behind all."""
        index = bisect_left(self._wanted, address)
        return self._wanted[index] if index < len(self._wanted) else _ADDRESS_MASK

    def take(self, start: int, end: int, file: int, line: int) -> int:
        """Give the row's line to all wanted addresses in it; return the first one behind it."""
        first, last = bisect_left(self._wanted, start), bisect_left(self._wanted, end)
        for address in self._wanted[first:last]:
            self.found.setdefault(address, (file, line))
        return self.next(end)


def find_lines(
    units: Units, program: LineProgram, wanted: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Return the file number and the line of each of the sorted addresses that the program has.

    Raises DwarfError.
    """
    units.work.spend(len(program.code) // 2)
    try:
        return _run(program, _Rows(wanted), units.elf.allowance)
    except IndexError as error:
        raise DwarfError("a line program is cut off") from error


def _run(program: LineProgram, rows: _Rows, allowance: Allowance) -> dict[int, tuple[int, int]]:
    code, step, operands = program.code, program.step, program.operands
    first_special, end = len(operands), len(program.code)
    specials = range(256 - first_special)
    advances = [0] * first_special + [op // program.line_range * step for op in specials]
    lines = [0] * first_special + [program.line_base + op % program.line_range for op in specials]
    position, address, file, line, pause = 0, 0, 1, 1, 0
    # The current row, which ends where the next one begins, and the next wanted address.
    start, start_file, start_line, want = -1, 1, 1, 0
    while position < end:
        if position >= pause:
            pause = position + _PAUSE_BYTES
            allowance.check()
        op = code[position]
        position += 1
        ends = False
        if op >= first_special:
            address += advances[op]
            line += lines[op]
        elif op == 0:
            size, position = uleb(code, position)
            kind = code[position] if size else 0
            if kind == 2 and size == 9:
                address = int.from_bytes(code[position + 1 : position + size], "little")
            position += size
            if kind != 1:
                continue
            ends = True
        elif op != 1:
            if op == 2:
                amount, position = uleb(code, position)
                address = address + amount * step & _ADDRESS_MASK
            elif op == 3:
                amount, position = sleb(code, position)
                line += amount
            elif op == 4:
                file, position = uleb(code, position)
            elif op == 8:
                address += advances[255]
            elif op == 9:
                address += int.from_bytes(code[position : position + 2], "little")
                position += 2
            else:
                for _ in range(operands[op]):
                    _, position = uleb(code, position)
            continue
        # A new row: it ends the current one.
        if start < 0:
            want = rows.next(address) if address >= _FIRST_ADDRESS else _ADDRESS_MASK
        elif want < address:
            want = rows.take(start, address, start_file, start_line)
        start, start_file, start_line = address, file, line
        if ends:
            address, file, line, start = 0, 1, 1, -1
    return rows.found
