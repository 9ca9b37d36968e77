"""The arguments of functions in tracebacks: where they lie, and how they are written.

The compiler describes them by a program of bytes (FUNCDATA_ArgInfo): the offset and the size of a
value, or one of five operations. Values in registers have slots on the stack into which the
compiler spills them; a second table (FUNCDATA_ArgLiveInfo) says which slots hold a value at an
instruction. runtime/traceback.go, printArgs, and internal/abi/symtab.go, Go 1.19 to 1.27.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from symbolizer.errors import GoTableError
from symbolizer.go.inline import InlineTables
from symbolizer.go.pcvalue import read_table, value_at

MAX_PROGRAM_BYTES: Final = 256
"""The longest that the compiler writes has 172."""
_END: Final = 0xFF
_OPEN: Final = 0xFE
_TEXTS: Final = {_OPEN: "{", 0xFD: "}", 0xFC: "...", 0xFB: "_"}
_CLOSE: Final = 0xFD
_NEVER_DEAD: Final = 0xFF  # of slots that lie before this offset there is no table
_SLOTS: Final = 256  # slots are counted in a byte
_MAX_SIZE: Final = 8


@dataclass(frozen=True, slots=True)
class Argument:
    """A value of `size` bytes, `offset` bytes from where the function's arguments begin.

    They begin behind the return address. One that is not live is an old value of its slot.
    """

    offset: int
    size: int
    is_live: bool


Arguments = tuple[str | Argument, ...]
"""What stands between the parentheses of a frame: text, and values to write as hexadecimals."""


class ArgumentLookup:
    """Looks up the arguments of a program's functions."""

    def __init__(self, tables: InlineTables) -> None:
        self._tables = tables

    def at(self, index: int, code_offset: int) -> Arguments:
        """The arguments of function `index`, at an instruction so far behind its entry.

        () where the compiler left no description, as for functions without arguments and for
        assembly. Raises GoTableError.
        """
        tables = self._tables.table.argument_tables(index)
        if tables.info is None:
            return ()
        program = self._tables.funcdata(tables.info, MAX_PROGRAM_BYTES)
        live_info, live_index = b"", 0
        if tables.live_info is not None:
            table = read_table(self._tables.table.pctab, tables.live_index)
            live_index = value_at(table, code_offset)
            first = self._tables.funcdata(tables.live_info, 1)
            bits = b""
            if live_index > 0:
                bits = self._tables.funcdata(tables.live_info + live_index, _SLOTS // 8)
            live_info = first + bits
        return decoded(program, live_info, has_liveness=live_index > 0)


def decoded(program: bytes, live_info: bytes, *, has_liveness: bool) -> Arguments:
    """The arguments that a program describes.

    `live_info` is the offset of the first slot that may be dead, and a bit for each slot from
    there on; b"" if there is none. Raises GoTableError for a program without an end.
    """
    first_slot = live_info[0] if live_info else _NEVER_DEAD
    parts: list[str | Argument] = []
    codes, slot, is_first = iter(program), 0, True
    for code in codes:
        if code == _END:
            return _joined(parts)
        if not is_first and code != _CLOSE:
            parts.append(", ")
        is_first = code == _OPEN
        if code in _TEXTS:
            parts.append(_TEXTS[code])
            continue
        size = next(codes, None)
        if size is None:
            break
        is_slot = code >= first_slot
        is_live = not (is_slot and has_liveness) or _bit(live_info, slot)
        parts.append(Argument(code, min(size, _MAX_SIZE), is_live))
        slot = (slot + is_slot) % _SLOTS
    raise GoTableError("the description of a function's arguments does not end")


def _bit(live_info: bytes, slot: int) -> bool:
    byte = 1 + slot // 8
    return byte < len(live_info) and bool(live_info[byte] >> slot % 8 & 1)


def _joined(parts: list[str | Argument]) -> Arguments:
    """The same with texts that follow each other made one."""
    joined: list[str | Argument] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)
