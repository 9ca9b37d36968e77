"""Decodes functions' tables when they are asked for, and keeps the latest."""

from collections.abc import Iterable, Iterator
from typing import Final

from symbolizer.inline import FunctionLines, InlineTables
from symbolizer.pclntab import FuncRecord
from symbolizer.pcvalue import PcValues, decode, read_table

_CACHE_COST: Final = 1 << 18
"""Integers that the cached tables may hold together: some 10 MiB."""

_BATCH_FUNCTIONS = 1024
_BATCH_BYTES = 1 << 19


class LineStore:
    """The decoded tables of a program's functions, by their place in the function table."""

    def __init__(self, tables: InlineTables, text_start: int) -> None:
        self._tables = tables
        self._text_start = text_start
        self._lines: dict[int, FunctionLines] = {}
        self._stack_depths: dict[int, PcValues] = {}
        self._cost = 0

    def of(self, index: int) -> FunctionLines:
        """Return the lines of one function. Raises GoTableError if its tables are corrupt."""
        lines = self._lines.get(index)
        if lines is not None:
            return lines
        return next(self.of_many([index]))[1]

    def of_many(self, indices: Iterable[int]) -> Iterator[tuple[int, FunctionLines]]:
        """Yield each function and its lines, in any order. Decodes many tables at a time.

        Raises GoTableError if tables are corrupt.
        """
        batch: dict[int, FuncRecord] = {}
        tables: dict[int, bytes] = {}
        size = 0
        for index in indices:
            lines = self._lines.get(index)
            if lines is not None:
                yield index, lines
                continue
            record = batch[index] = self._tables.table.function(index)
            for position in _positions(record):
                if position not in tables:
                    tables[position] = read_table(self._tables.table.pctab, position)
                    size += len(tables[position])
            if len(batch) >= _BATCH_FUNCTIONS or size >= _BATCH_BYTES:
                yield from self._decoded(batch, tables)
                batch, tables, size = {}, {}, 0
        yield from self._decoded(batch, tables)

    def stack_depths_of(self, index: int) -> PcValues:
        """Return the function's pcsp table. Raises GoTableError if it is corrupt."""
        depths = self._stack_depths.get(index)
        if depths is None:
            pctab = self._tables.table.pctab
            (depths,) = decode([read_table(pctab, self._tables.table.function(index).pcsp)])
            self._make_room(len(depths.ends))
            self._stack_depths[index] = depths
        return depths

    def _decoded(
        self, batch: dict[int, FuncRecord], tables: dict[int, bytes]
    ) -> Iterator[tuple[int, FunctionLines]]:
        decoded = dict(zip(tables, decode(list(tables.values())), strict=True))
        for index, record in batch.items():
            entry = self._text_start + int(self._tables.table.entries[index])
            parts = (decoded[position] for position in _positions(record))
            lines = FunctionLines(self._tables, record, entry, *parts)
            self._make_room(lines.cost)
            self._lines[index] = lines
            yield index, lines

    def _make_room(self, cost: int) -> None:
        """Empty the caches if `cost` more integers are too many."""
        self._cost += cost
        if self._cost > _CACHE_COST:
            self._lines.clear()
            self._stack_depths.clear()
            self._cost = cost


def _positions(record: FuncRecord) -> tuple[int, int, int]:
    """Return where in pctab the tables of lines, files and inlined calls begin."""
    return record.pcln, record.pcfile, record.inline_index
