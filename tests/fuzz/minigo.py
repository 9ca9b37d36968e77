"""Makes small Go programs: a few functions of a real one, with tables that hold nothing else.

A real program has thousands of functions, and most changes would hit bytes that no parser reads.
So we move the code of some functions together, adjust calls and references to the new places, and
write a new pclntab for them.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import capstone
import numpy as np
from capstone import x86

from symbolizer import ElfFile, Function, GoBinary, SymbolizerError
from symbolizer.elf.relocations import RelocatedWords
from symbolizer.go.arguments import MAX_PROGRAM_BYTES
from symbolizer.go.pcvalue import PcValues, read_table
from tests.fuzz.elfs import PF_R, PF_W, PF_X, Load, Part, small_elf
from tests.toolchains import MINORS, toolchain
from tests.unit.symbolizer.go_programs import module_vaddr

TARGETS: Final = Path(__file__).resolve().parents[1] / "targets"
NEWEST: Final = MINORS[-1]
TABLE_VADDR: Final = 0x3000_0000
TREES_VADDR: Final = 0x3100_0000
MODULE_VADDR: Final = 0x3200_0000
_HEADER: Final = struct.Struct("<IHBB8Q")
_INLINE_PCDATA, _INLINE_FUNCDATA, _NONE = 2, 3, 0xFFFFFFFF


@cache
def real(target: str, minor: str = NEWEST, mode: str = "trimpath") -> GoBinary:
    """A target of tests/targets, as linked."""
    return GoBinary.open(
        ElfFile.from_bytes(toolchain(minor).build(TARGETS / target, mode).read_bytes())
    )


@dataclass
class _Strings:
    """A table of strings with zeros behind them, each once."""

    data: bytearray = field(default_factory=bytearray)
    known: dict[bytes, int] = field(default_factory=dict)

    def at(self, text: bytes) -> int:
        if text not in self.known:
            self.known[text] = len(self.data)
            self.data += text + b"\0"
        return self.known[text]


class _Shrunk:
    """New tables for some functions of a program."""

    def __init__(self, binary: GoBinary, functions: Iterable[Function]) -> None:
        self.binary, self.table = binary, binary._table
        self.is_old = binary.version.minor < 20
        self.functions = sorted(functions, key=lambda each: each.entry)
        self.names, self.files = _Strings(), _Strings()
        self.units, self.pctab = bytearray(), bytearray(1)
        self.records, self.trees = bytearray(), bytearray()
        self.entries: dict[int, int] = {}
        """Old entry → offset in the new text."""
        at = 0
        for each in self.functions:
            self.entries[each.entry] = at
            at += each.end - each.entry
        self.text_bytes = at

    def _values(self, position: int) -> list[int]:
        return [value for _, value in PcValues([read_table(self.table.pctab, position)]).steps(0)]

    def _pc_table(self, position: int) -> int:
        if not position:
            return 0
        at = len(self.pctab)
        self.pctab += read_table(self.table.pctab, position) + b"\0"
        return at

    def _name(self, offset: int) -> int:
        return self.names.at(self.table.names.terminated(offset, 0, 1 << 15))

    def _unit(self, pcfile: int, unit: int) -> int:
        at = len(self.units) // 4
        for number in range(max(self._values(pcfile), default=-1) + 1):
            offset = self.table.file_offset(unit, number)
            path = None if offset is None else self.table.files.terminated(offset, 0, 1 << 15)
            path = path and path.rpartition(b"/go/src/")[2]  # not where Go is installed
            self.units += struct.pack("<I", _NONE if path is None else self.files.at(path))
        return at

    def _tree(self, tree: int | None, index: int) -> int:
        if tree is None:
            return _NONE
        at, size, name_at = len(self.trees), *((20, 12) if self.is_old else (16, 4))
        trees = self.binary._lookup._tables._trees
        for number in range(max(self._values(index), default=-1) + 1):
            node = bytearray(trees.read(tree + number * size, size))
            (name,) = struct.unpack_from("<i", node, name_at)
            struct.pack_into("<i", node, name_at, self._name(name))
            self.trees += node
        return at

    def record(self, function: Function) -> bytes:
        found = self.table.function(function.index)
        start = int(self.table.offsets[function.index])
        head = bytearray(self.table.functions.read(start, 40 if self.is_old else 44))
        struct.pack_into(
            "<Ii", head, 0, self.entries[function.entry], self._name(found.name_offset)
        )
        tables = [self._pc_table(each) for each in (found.pcsp, found.pcfile, found.pcln)]
        unit = self._unit(found.pcfile, found.cu_offset)
        struct.pack_into("<IIIII", head, 16, *tables, 4, unit)
        head[-1] = 7
        tree = self._tree(found.inline_tree, found.inline_index)
        arguments = self.table.argument_tables(function.index)
        pcdata = (0, 0, *map(self._pc_table, (found.inline_index, arguments.live_index)))
        last = max([0, *self._values(arguments.live_index)]) if arguments.live_index else 0
        info = self._funcdata(arguments.info, MAX_PROGRAM_BYTES)
        live = self._funcdata(arguments.live_info, last + 2)
        funcdata = (*[_NONE] * _INLINE_FUNCDATA, tree, _NONE, info, live)
        return bytes(head) + struct.pack("<11I", *pcdata, *funcdata)

    def _funcdata(self, offset: int | None, size: int) -> int:
        """A piece of what lies behind moduledata.gofunc."""
        if offset is None:
            return _NONE
        at = len(self.trees)
        data = self.binary._lookup._tables.funcdata(offset, size)
        end = data.find(0xFF) + 1 if size == MAX_PROGRAM_BYTES else size
        self.trees += data[:end]
        return at

    def build(self, text_vaddr: int) -> bytes:
        """The new pclntab."""
        count = len(self.functions)
        functab, at = b"", 8 * count + 8
        for each in self.functions:
            record = self.record(each)
            functab += struct.pack("<II", self.entries[each.entry], at + len(self.records))
            self.records += record + bytes(-len(record) % 8)
        functab += struct.pack("<II", self.text_bytes, 0)
        parts = [self.names.data, self.units, self.files.data, self.pctab]
        offsets = [_HEADER.size]
        for part in parts:
            part += bytes(-len(part) % 8)
            offsets.append(offsets[-1] + len(part))
        header = _HEADER.pack(
            *(self.table.header.magic, 0, 1, 8, count, len(self.files.known)),
            *(text_vaddr if self.table.header.text_start else 0, *offsets),
        )
        return header + b"".join(map(bytes, parts)) + functab + bytes(self.records)


def _moved(shrunk: _Shrunk, text_vaddr: int) -> bytes:
    """The code, with adjusted displacements to kept functions and to data."""
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    starts = [each.entry for each in shrunk.functions]
    elf, binary = shrunk.binary.elf, shrunk.binary

    def moved(target: int) -> int | None:
        index = int(np.searchsorted(starts, target, side="right")) - 1
        if index >= 0 and target < shrunk.functions[index].end:
            return text_vaddr + shrunk.entries[starts[index]] + target - starts[index]
        return None if binary.text_start <= target < binary.text_end else target

    text = bytearray()
    for function in shrunk.functions:
        code = bytearray(elf.read(function.entry, function.end - function.entry))
        new_entry = text_vaddr + shrunk.entries[function.entry]
        for each in decoder.disasm(bytes(code), function.entry):
            at, target = 0, None
            for operand in each.operands:
                if operand.type == x86.X86_OP_MEM and operand.mem.base == x86.X86_REG_RIP:
                    at, target = each.disp_offset, each.address + each.size + operand.mem.disp
                elif (
                    operand.type == x86.X86_OP_IMM
                    and each.imm_size == 4
                    and (each.group(capstone.CS_GRP_JUMP) or each.group(capstone.CS_GRP_CALL))
                ):
                    at, target = each.imm_offset, operand.imm
            to = None if target is None else moved(target)
            if to is not None and at:
                behind = new_entry + each.address - function.entry + each.size
                place = each.address - function.entry + at
                code[place : place + 4] = struct.pack("<I", (to - behind) & 0xFFFFFFFF)
        text += code
    return bytes(text)


def mini(
    binary: GoBinary,
    names: Collection[str],
    *,
    keeps_version: bool = True,
    extra: Collection[Part] = (),
) -> bytes:
    """The functions of these names as a program of their own; `extra` are sections to add.

    Without `keeps_version` there is no build information: `names` must have schedinit.
    """
    functions = [each for each in binary.functions() if each.name in names]
    assert {each.name for each in functions} == set(names), set(names) - {f.name for f in functions}
    shrunk = _Shrunk(binary, functions)
    text_vaddr = binary.text_start
    table = shrunk.build(text_vaddr)
    text = _moved(shrunk, text_vaddr)
    header = _HEADER.unpack_from(table)
    _, name_at, unit_at, file_at, pctab_at, pcln_at = header[6], *header[7:]
    module = bytearray(binary.elf.read(module_vaddr(binary.elf), binary.layout.size("moduledata")))
    tables = (0, name_at, unit_at, file_at, pctab_at, pcln_at, pcln_at)
    for word, offset in zip((0, 1, 4, 7, 10, 13, 16), tables, strict=True):
        struct.pack_into("<Q", module, 8 * word, TABLE_VADDR + offset)
    end = text_vaddr + len(text)
    struct.pack_into("<5Q", module, 8 * 19, 0, text_vaddr, end, text_vaddr, end)
    struct.pack_into("<Q", module, 8 * 17, len(functions) + 1)
    struct.pack_into("<Q", module, binary.layout.offset("moduledata", "gofunc"), TREES_VADDR)
    version = binary.version.text.encode()
    info = b"\xff Go buildinf:\x08\x02".ljust(32, b"\0") + bytes([len(version)]) + version
    modules = b"0" * 16 + b"path\tmain\nbuild\t-race=true\n" + b"1" * 16
    info += bytes([len(modules)]) + modules
    data = bytes(module).ljust(-(-len(module) // 16) * 16, b"\0") + (info if keeps_version else b"")
    loads = [
        Load(text_vaddr, text, PF_R | PF_X),
        Load(TABLE_VADDR, table),
        Load(TREES_VADDR, bytes(shrunk.trees) + b"\0"),
        Load(MODULE_VADDR, data, PF_R | PF_W),
        *_version_string(binary),
    ]
    data_ranges = [each for each in binary.elf.segments if each.writable]
    loads += [Load(each.vaddr, b"", PF_R | PF_W, memsz=each.memsz) for each in data_ranges]
    parts = [Part(".gopclntab", vaddr=TABLE_VADDR, size=len(table)), *extra]
    return small_elf(loads, parts, entry=text_vaddr)


def _version_string(binary: GoBinary) -> list[Load]:
    """runtime.buildVersion and its text, at their addresses in the real program."""
    elf, text = binary.elf, binary.version.text.encode()
    words = RelocatedWords(elf)
    for segment in elf.segments:
        data = elf.read(segment.vaddr, segment.filesz) if segment.writable else b""
        at = data.find(struct.pack("<Q", len(text)))
        while at >= 8:
            if at % 8 == 0:
                (pointer,) = words.read(segment.vaddr + at - 8, 1)
                try:
                    is_it = elf.read(pointer, len(text)) == text
                except SymbolizerError:  # not a pointer
                    is_it = False
                if is_it:
                    header = struct.pack("<QQ", pointer, len(text))
                    place = Load(segment.vaddr + at - 8, header, PF_R | PF_W)
                    return [place, Load(pointer, text)]
            at = data.find(struct.pack("<Q", len(text)), at + 1)
    return []
