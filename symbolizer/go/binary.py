"""A whole Go program: functions by name and by address, frames, stack deltas, calls.

Addresses are virtual addresses as linked: from an address in a running position-independent
program, subtract the address that it was loaded at.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Self

import numpy as np

from symbolizer.elf.file import ElfFile
from symbolizer.elf.relocations import RelocatedWords
from symbolizer.errors import (
    ElfError,
    GoTableError,
    NotGoError,
    ObfuscatedProgram,
    OtherCompiler,
    PackedProgram,
    UnsupportedGoVersion,
)
from symbolizer.frames import Frame
from symbolizer.go.arguments import ArgumentLookup, Arguments
from symbolizer.go.buildinfo import BuildInfo, read_build_info
from symbolizer.go.inline import InlineTables
from symbolizer.go.lookup import FrameLookup
from symbolizer.go.moduledata import ModuleData, find_moduledata
from symbolizer.go.name_index import NameIndex
from symbolizer.go.other_makers import is_packed, other_compiler
from symbolizer.go.pclntab import GO_1_20, FuncRecord, PclnTable, find_pclntab
from symbolizer.go.pcvalue import NO_VALUE, read_table, steps, value_at
from symbolizer.go.runtime_layout import RuntimeLayout, known_range, layout_for
from symbolizer.go.version import GoVersion
from symbolizer.x86.call_sites import CALL_BYTES, InstructionStarts, candidate_calls

_MAX_DECODED_BYTES = 64 << 20
_MAX_SCHEDINIT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the program. `end` is where the next one begins, so it includes padding.

    `start_line` is the line of the `func` keyword, 0 before Go 1.20. `flags` are abi.FuncFlag:
    1 it is the outermost function of a stack, 2 it writes SP, 4 it is assembly.
    """

    name: str
    entry: int
    end: int
    start_line: int
    func_id: int
    flags: int
    index: int
    """Its index in the program's function table."""
    argument_bytes: int
    """The room for its arguments above its return address; negative if unknown (assembly)."""


@dataclass(frozen=True, slots=True)
class _Module:
    """Another module of a process. `shift` is an address of the program minus the module's own."""

    binary: "GoBinary"
    shift: int

    def has(self, pc: int) -> bool:
        return self.binary.text_start <= pc - self.shift < self.binary.text_end


class GoBinary:
    """A Go program; tables are read when they are needed. Any thread may use it."""

    _modules: tuple[_Module, ...] = ()

    def __init__(
        self,
        elf: ElfFile,
        table: PclnTable,
        module: ModuleData,
        gofunc: int | None,
        version: GoVersion,
        layout: RuntimeLayout,
        build_info: BuildInfo | None,
        types: tuple[int, int],
    ) -> None:
        """Use `GoBinary.open`."""
        self.elf: Final = elf
        self.version: Final = version
        self.layout: Final = layout
        self.build_info: Final = build_info
        self.types: Final = types
        """The first address of the types' descriptors, as linked, and that behind the last one."""
        self.module_start: Final = module.vaddr
        """The address of runtime.firstmoduledata, as linked."""
        self.text_start: Final = module.text_start
        self.text_end: Final = module.text_end
        self.is_obfuscated: Final = table.header.is_obfuscated
        """Whether an obfuscator changed its pclntab."""
        self._table = table
        # Searched without a copy, and much faster than a numpy array is by bisect.
        self._entries = table.entries.data
        self._names = NameIndex(table)
        tables = InlineTables(elf, table, layout, gofunc)
        self._lookup = FrameLookup(tables, module.text_start)
        self._tables = tables
        self._arguments = ArgumentLookup(tables)

    @classmethod
    def open(cls, elf: ElfFile, *, allow_unknown_version: bool = False) -> Self:
        """Find the program's tables in `elf`, which the caller closes.

        Raises NotGoError if it is not a Go program (PackedProgram if it may hold one),
        UnsupportedGoVersion if its runtime's layout is unknown (unless `allow_unknown_version`:
        then the nearest known layout is used), OtherCompiler if the runtime is not Go's own,
        ObfuscatedProgram if it hides its version, and GoTableError if its tables contradict
        themselves.
        """
        try:
            table = find_pclntab(elf)
        except NotGoError as error:
            if is_packed(elf):
                raise PackedProgram from error
            if compiler := other_compiler(elf):
                raise OtherCompiler(compiler) from error
            raise
        except UnsupportedGoVersion as error:
            info = _build_info(elf)
            named = f" (it names {info.version[:64]!r})" if info and info.version else ""
            raise UnsupportedGoVersion(f"{error}{named}") from error
        words = RelocatedWords(elf)
        module = find_moduledata(elf, table, words)
        build_info = _build_info(elf)
        is_obfuscated = table.header.is_obfuscated
        try:
            version = _version(elf, table, module, words, build_info)
        except UnsupportedGoVersion as error:
            if is_obfuscated:
                raise ObfuscatedProgram("it does not name its Go version") from error
            raise
        layout = layout_for(version, allow_unknown_version=allow_unknown_version)
        magic = GO_1_20 if is_obfuscated else table.header.magic
        if magic != layout.pclntab_magic:
            if not layout.is_of(version):
                raise UnsupportedGoVersion(
                    f"the program was built with {version}, which is not known, and its pclntab is "
                    f"not that of Go {layout.version}"
                )
            raise GoTableError(
                f"pclntab contradicts the Go version that the program names, {version}"
            )
        gofunc = None
        if not table.header.has_addresses:
            gofunc = module.pointer(words, layout.offset("moduledata", "gofunc"))
        start, end = (
            module.pointer(words, layout.offset("moduledata", name)) for name in ("types", "etypes")
        )
        types = start, end
        return cls(elf, table, module, gofunc, version, layout, build_info, types)

    def with_module(self, binary: "GoBinary", shift: int) -> "GoBinary":
        """A copy that also looks up addresses in the text of another module of the process.

        Such an address is one of the module as linked, plus `shift`. Names are still those of the
        program alone. Both share what they have open.
        """
        joined = copy(self)
        joined._modules = (*self._modules, _Module(binary, shift))
        return joined

    def functions_named(self, name: str) -> tuple[Function, ...]:
        """Return all functions of that name, in order of address.

        In Go 1.19 all instances of a generic function share one name, which ends with "[...]".
        Raises GoTableError.
        """
        return self.functions_by_name([name])[name]

    def functions_by_name(self, names: Collection[str]) -> dict[str, tuple[Function, ...]]:
        """Return `functions_named` for each name, in one pass over the program's names."""
        with self.elf.allowance:
            return {
                name: tuple(map(self._function, indices))
                for name, indices in self._names.indices(names).items()
            }

    def has_function(self, name: str) -> bool:
        """Whether a function has that name, also one that was inlined wherever it is called.

        Raises GoTableError.
        """
        with self.elf.allowance:
            return self._names.has(name)

    def function_at(self, pc: int) -> Function | None:
        """Return the function at the address, None outside of Go's text."""
        if module := self._module_at(pc):
            function = module.binary.function_at(pc - module.shift)
            return function and replace(
                function, entry=function.entry + module.shift, end=function.end + module.shift
            )
        index = self._index_at(pc)
        return None if index is None else self._function(index)

    def functions(self) -> Iterator[Function]:
        """Yield all functions in order of address."""
        for index in range(len(self._table.offsets)):
            yield self._function(index)

    def frames(self, pc: int) -> tuple[Frame, ...]:
        """Return the logical frames at an instruction, innermost inlined call first.

        The physical function comes last; () where there is none. For a return address pass the
        address minus 1. Wrappers are included. For many addresses use `frames_many`, which is ten
        times faster. Raises GoTableError if the tables are corrupt.
        """
        return self.frames_many([pc])[pc]

    def frames_many(self, pcs: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
        """Return the frames at each address, as `frames` does."""
        unique = set(pcs)
        with self.elf.allowance:
            result = self._frames_many(unique)
        for module in self._modules:
            known = module.binary.frames_many(
                pc - module.shift for pc in filter(module.has, unique)
            )
            for pc, frames in known.items():
                result[pc + module.shift] = tuple(
                    replace(frame, pc=frame.pc + module.shift) for frame in frames
                )
        return result

    def _frames_many(self, unique: set[int]) -> dict[int, tuple[Frame, ...]]:
        start, end = (self.text_start + self._entries[i] for i in (0, -1))
        result: dict[int, tuple[Frame, ...]] = {pc: () for pc in unique if not start <= pc < end}
        known = np.array(sorted(unique - result.keys()), dtype=np.int64)
        offsets = (known - self.text_start).astype(np.uint32)
        indices = np.searchsorted(self._table.entries, offsets, side="right") - 1
        wanted: dict[int, list[int]] = {}
        for index, pc in zip(indices.tolist(), known.tolist(), strict=True):
            wanted.setdefault(index, []).append(pc)
        return result | self._lookup.frames(wanted)

    def arguments(self, pc: int) -> Arguments:
        """Return what tracebacks show of the arguments of the physical function at `pc`.

        For a return address pass the address minus 1. Raises GoTableError.
        """
        if module := self._module_at(pc):
            return module.binary.arguments(pc - module.shift)
        index = self._index_at(pc)
        return () if index is None else self._arguments.at(index, pc - self._entry(index))

    def wrapped(self, entry: int) -> int:
        """Return the entry of the function that a wrapper of a `go` statement calls.

        The compiler makes one for each `go` statement with arguments; Go's tracer names what it
        wraps (runtime/tracestack.go, startPCForTrace). Of another function it is `entry` itself.
        Raises GoTableError.
        """
        if module := self._module_at(entry):
            return module.binary.wrapped(entry - module.shift) + module.shift
        index = self._index_at(entry)
        info = None if index is None else self._table.wrap_info(index)
        if info is None:
            return entry
        wrapped = self.text_start + int.from_bytes(self._tables.funcdata(info, 4), "little")
        inner = self.function_at(wrapped)
        return wrapped if inner is not None and inner.entry == wrapped else entry

    def sp_delta(self, pc: int) -> int:
        """Return the distance in bytes from the stack pointer at `pc` to the return address.

        -1 where Go's table has no value, and outside of Go's text. Raises GoTableError.
        """
        if module := self._module_at(pc):
            return module.binary.sp_delta(pc - module.shift)
        index = self._index_at(pc)
        if index is None:
            return -1
        table = read_table(self._table.pctab, self._table.function(index).pcsp)
        return value_at(table, pc - self._entry(index))

    def sp_deltas(self, function: Function) -> tuple[tuple[int, int, int], ...]:
        """Return `sp_delta` of a whole function, as ranges: (start, end, delta).

        Raises GoTableError.
        """
        with self.elf.allowance:
            return self._sp_deltas(function)

    def _sp_deltas(self, function: Function) -> tuple[tuple[int, int, int], ...]:
        table = read_table(self._table.pctab, self._table.function(function.index).pcsp)
        deltas = []
        start = function.entry
        for offset, delta in steps(table):
            end = min(function.entry + offset, function.end)
            if end > start:
                deltas.append((start, end, delta))
            start = max(start, end)
        if start < function.end:
            deltas.append((start, function.end, NO_VALUE))
        return tuple(deltas)

    def call_sites(self, *targets: Function) -> dict[int, tuple[int, ...]]:
        """Return the addresses of the instructions that call each function, by its entry.

        Calls through registers, and jumps, are not included. Raises GoTableError.
        """
        starts = InstructionStarts()
        entries = {target.entry for target in targets}
        size = 0
        result = {}
        try:
            candidates = candidate_calls(self.elf.read, self.text_start, self.text_end, entries)
            for target, at in candidates.items():
                pcs: list[int] = []
                for index, group in groupby(at, key=self._index_at):
                    if index is None:
                        continue
                    entry, addresses = self._entry(index), list(group)
                    code = self.elf.read(entry, addresses[-1] + CALL_BYTES - entry)
                    size += len(code)
                    if size > _MAX_DECODED_BYTES:
                        raise GoTableError(
                            "a function is called from more code than in any real program"
                        )
                    pcs += starts.among(code, entry, addresses)
                result[target] = tuple(pcs)
        except ElfError as error:
            raise GoTableError(f"the program's text is not in the file: {error}") from error
        return result

    def _module_at(self, pc: int) -> _Module | None:
        return next((module for module in self._modules if module.has(pc)), None)

    def _index_at(self, pc: int) -> int | None:
        index = bisect_right(self._entries, pc - self.text_start) - 1
        return index if 0 <= index < len(self._table.offsets) else None

    def _entry(self, index: int) -> int:
        return self.text_start + self._entries[index]

    def _function(self, index: int) -> Function:
        record: FuncRecord = self._table.function(index)
        return Function(
            name=self._table.function_name(record.name_offset),
            entry=self._entry(index),
            end=self._entry(index + 1),
            start_line=record.start_line,
            func_id=record.func_id,
            flags=record.flags,
            index=index,
            argument_bytes=record.argument_bytes,
        )


def _build_info(elf: ElfFile) -> BuildInfo | None:
    try:
        return read_build_info(elf)
    except GoTableError:
        return None


def _version(
    elf: ElfFile,
    table: PclnTable,
    module: ModuleData,
    words: RelocatedWords,
    build_info: BuildInfo | None,
) -> GoVersion:
    """Return the version from the build information, else from the runtime's own variable."""
    if build_info is not None:
        try:
            return GoVersion.parse(build_info.version)
        except UnsupportedGoVersion:
            pass  # An obfuscator may have overwritten it, and left the runtime's own variable.
    for index in NameIndex(table).indices(["runtime.schedinit"])["runtime.schedinit"]:
        entry, end = (module.text_start + int(table.entries[i]) for i in (index, index + 1))
        try:
            code = elf.read(entry, min(end - entry, _MAX_SCHEDINIT_BYTES))
        except ElfError as error:
            raise GoTableError(f"the program's text is not in the file: {error}") from error
        from symbolizer.go.version_scan import find_build_version  # with the disassembler

        text = find_build_version(elf, words, entry, code)
        if text:
            return GoVersion.parse(text)
    raise UnsupportedGoVersion(
        f"the program does not name the Go version that built it; known are {known_range()}"
    )
