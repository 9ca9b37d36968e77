"""Decodes functions' tables when they are asked for, and keeps the latest."""

from typing import Final

from symbolizer.inline import FunctionLines, InlineTables
from symbolizer.pcvalue import PcValues, read_pc_values

_MAX_COST: Final = 1 << 16
"""Integers that the cached tables may hold together: some 3 MiB."""

_FUNCTION_COST = 16


class LineStore:
    """The decoded tables of a program's functions, by their place in the function table."""

    def __init__(self, tables: InlineTables, text_start: int) -> None:
        self._tables = tables
        self._text_start = text_start
        self._functions: dict[int, FunctionLines] = {}
        # By position in pctab: the linker stores equal tables of several functions once.
        self._pc_values: dict[int, PcValues] = {}
        self._cost = 0

    def of(self, index: int) -> FunctionLines:
        """Return the lines of function `index`. Raises GoTableError if its tables are corrupt."""
        lines = self._functions.get(index)
        if lines is None:
            record = self._tables.table.function(index)
            lines = FunctionLines(
                self._tables,
                record,
                entry=self._text_start + int(self._tables.table.entries[index]),
                lines=self._values(record.pcln),
                files=self._values(record.pcfile),
                index=self._values(record.inline_index),
            )
            self._make_room(_FUNCTION_COST)
            self._functions[index] = lines
        return lines

    def stack_depths_of(self, index: int) -> PcValues:
        """Return the function's pcsp table. Raises GoTableError if it is corrupt."""
        return self._values(self._tables.table.function(index).pcsp)

    def _values(self, position: int) -> PcValues:
        values = self._pc_values.get(position)
        if values is None:
            values = read_pc_values(self._tables.table.pctab, position)
            self._make_room(2 * len(values.ends))
            self._pc_values[position] = values
        return values

    def _make_room(self, cost: int) -> None:
        """Empty the caches if `cost` more integers are too many."""
        self._cost += cost
        if self._cost > _MAX_COST:
            self._functions.clear()
            self._pc_values.clear()
            self._cost = cost
