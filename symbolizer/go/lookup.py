"""From addresses to logical frames, many addresses at a time.

The larger a function, the longer its tables take to decode. The addresses of a whole profile are
looked up fast since all tables are decoded at once, and all innermost frames are looked up before
all their callers.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from symbolizer.elf.table import Ledger
from symbolizer.errors import GoTableError
from symbolizer.frames import Frame
from symbolizer.go.inline import UNKNOWN_FILE, Callee, InlineTables
from symbolizer.go.pclntab import FuncRecord
from symbolizer.go.pcvalue import NO_VALUE, PcValues, read_table

_MAX_DEPTH: Final = 128
_MAX_BATCH_BYTES = 1 << 19
"""Tables of this size use about 50 MB while they are decoded."""


class FrameLookup:
    """Looks up frames in a program's tables. Keeps names and paths, nothing else."""

    def __init__(self, tables: InlineTables, text_start: int) -> None:
        self._tables = tables
        self._text_start = text_start

    def frames(self, wanted: Mapping[int, Iterable[int]]) -> dict[int, tuple[Frame, ...]]:
        """Return the frames at each address of `wanted`, {function's index: addresses in it}.

        Innermost first, the physical function last. Raises GoTableError.
        """
        result: dict[int, tuple[Frame, ...]] = {}
        ledger = Ledger(self._tables.table.pctab)
        batch = _Batch(self._tables, ledger)
        for index, pcs in wanted.items():
            entry = self._text_start + int(self._tables.table.entries[index])
            batch.add(self._tables.table.function(index), entry, pcs)
            if batch.size_bytes >= _MAX_BATCH_BYTES:
                result.update(batch.frames())
                batch = _Batch(self._tables, ledger)
        result.update(batch.frames())
        return result


class _Batch:
    """Addresses to look up together, and the functions and the tables that they need."""

    def __init__(self, tables: InlineTables, ledger: Ledger) -> None:
        self.size_bytes = 0
        self._tables = tables
        self._ledger = ledger
        self._functions: list[tuple[FuncRecord, int]] = []
        # Functions with equal tables share one: the linker stores it once.
        self._table_numbers: dict[int, int] = {}
        self._table_bytes: list[bytes] = []
        self._function_tables: list[tuple[int, int, int]] = []
        self._pcs: list[int] = []
        self._pc_functions: list[int] = []

    def add(self, record: FuncRecord, entry: int, pcs: Iterable[int]) -> None:
        """Add addresses of the function at `entry`."""
        before = len(self._pcs)
        self._pcs.extend(pcs)
        self._pc_functions += [len(self._functions)] * (len(self._pcs) - before)
        self._functions.append((record, entry))
        positions = (record.pcfile, record.pcln, record.inline_index)
        files, lines, calls = (self._table_number(position) for position in positions)
        self._function_tables.append((files, lines, calls))

    def frames(self) -> dict[int, tuple[Frame, ...]]:
        """Return the frames at each address. Raises GoTableError."""
        stacks: list[list[Frame]] = [[] for _ in self._pcs]
        if not stacks:
            return {}
        values = PcValues(self._table_bytes)
        tables = np.array(self._function_tables, dtype=np.int64)[self._pc_functions]
        entries = np.array([entry for _, entry in self._functions], dtype=np.int64)
        offsets = np.array(self._pcs, dtype=np.int64) - entries[self._pc_functions]
        asked = np.arange(len(stacks))
        for _ in range(_MAX_DEPTH):
            columns = (values.at(column, offsets[asked]) for column in tables[asked].T)
            answers = np.column_stack([asked, offsets[asked], *columns]).tolist()
            callers: dict[int, int] = {}
            for i, offset, file, line, call in answers:
                callee = self._callee(self._pc_functions[i], call)
                stacks[i].append(self._frame(self._pc_functions[i], callee, offset, file, line))
                if call >= 0:
                    callers[i] = callee.parent_pc
            if not callers:
                return dict(zip(self._pcs, map(tuple, stacks), strict=True))
            asked = np.array(list(callers), dtype=np.int64)
            offsets[asked] = list(callers.values())
        raise GoTableError("an inline tree is a circle, or deeper than any real one")

    def _callee(self, function: int, call: int) -> Callee:
        """Return inlined call number `call` of a function, or the function itself for -1."""
        record, _ = self._functions[function]
        if call >= 0:
            return self._tables.callee(record.inline_tree or 0, call)
        role = self._tables.layout.role(record.func_id)
        return Callee(self._tables.name(record.name_offset), record.start_line, role, 0)

    def _frame(self, function: int, callee: Callee, offset: int, file: int, line: int) -> Frame:
        record, entry = self._functions[function]
        if file == NO_VALUE or line == NO_VALUE:
            path, line = UNKNOWN_FILE, 0
        else:
            path = self._tables.path(record.cu_offset, file)
        return Frame(callee.name, path, line, callee.start_line, callee.role, entry + offset)

    def _table_number(self, position: int) -> int:
        number = self._table_numbers.get(position)
        if number is None:
            data = read_table(self._tables.table.pctab, position)
            self._ledger.charge(position, len(data))
            number = self._table_numbers[position] = len(self._table_bytes)
            self._table_bytes.append(data)
            self.size_bytes += len(data)
        return number
