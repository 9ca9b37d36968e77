"""Unwinding rules for native code, from .eh_frame, as C++ exceptions and debuggers use it.

The format is that of the Linux Standard Base 5.0, Core, sections 10.6 (.eh_frame) and 10.7
(.eh_frame_hdr). A library can have 100,000 functions and more, so only the entries that are
needed are read; .eh_frame_hdr has a sorted table of them.
"""

import struct
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from symbolizer.dwarf.forms import DwarfError, sleb, take, uleb
from symbolizer.elf.file import ElfFile
from symbolizer.errors import SymbolizerError
from symbolizer.unwind.cfi import (
    PE_OMIT,
    RETURN_ADDRESS,
    Machine,
    Program,
    State,
    initial_state,
    pointer,
    rule_ranges,
)
from symbolizer.unwind.rules import RuleKind, RuleRange, UnwindRule

_PT_GNU_EH_FRAME = 0x6474E550
_MAX_PROGRAM_HEADERS = 512
_HDR_VERSION = 1
_TABLE_ENCODING = 0x3B  # pairs of signed 4 bytes, counted from .eh_frame_hdr
_PAIR_BYTES = 8
_CIE_VERSIONS = (1, 3)
_MAX_AUGMENTATION_BYTES = 16
# Entries in libLLVM (98,000 functions) are at most 1,716 bytes long.
_MAX_ENTRY_BYTES = 1 << 16
_MAX_CIE_BYTES = 1 << 12
_FIRST_READ_BYTES = 256
_MAX_CIES = 1 << 10
_MAX_SCANNED = 1 << 18
_MAX_GAP_BYTES = 32
_AT_ENTRY = UnwindRule(RuleKind.SP, 8)
_SYSCALL = b"\x0f\x05"
_POPS = b"\x31\xed\x58"  # xor ebp, ebp; pop rax


@dataclass(frozen=True)
class _Cie:
    """A common information entry: what many functions share."""

    machine: Machine
    program: Program
    has_augmentation: bool

    @cached_property
    def state(self) -> State:
        """The state at each function's entry. Raises DwarfError."""
        return initial_state(self.machine, self.program)


@dataclass(frozen=True, slots=True)
class _Table:
    """The sorted table of .eh_frame_hdr: pairs of (address of a function, of its entry)."""

    elf: ElfFile
    base: int
    first: int
    count: int

    def entries_around(self, vaddr: int) -> tuple[int | None, int | None]:
        """Return the addresses of the last entry at or before `vaddr`, and of the next one."""
        index = bisect_right(range(self.count), vaddr - self.base, key=lambda i: self._pair(i)[0])
        return self._entry(index - 1), self._entry(index)

    def _entry(self, index: int) -> int | None:
        return self._pair(index)[1] + self.base if 0 <= index < self.count else None

    def _pair(self, index: int) -> tuple[int, int]:
        start, entry = struct.unpack(
            "<ii", self.elf.read(self.first + _PAIR_BYTES * index, _PAIR_BYTES)
        )
        return start, entry


class EhFrame:
    """The unwinding rules of an executable, a shared object or the vDSO; an UnwindTable."""

    def __init__(self, elf: ElfFile, table: _Table | None, frames: tuple[int, int]) -> None:
        """Use `EhFrame.open`. `frames`: address and size in bytes of .eh_frame."""
        self._elf = elf
        self._table = table
        self._frames = frames
        self._cies: dict[int, _Cie] = {}
        self._scanned: tuple[list[int], list[int]] | None = None

    @classmethod
    def open(cls, elf: ElfFile) -> Self | None:
        """Find the tables; None if there are none (also in files with debug data only).

        `elf` must stay open. Raises a SymbolizerError if the tables are corrupt.
        """
        with elf.allowance:
            return cls._open(elf)

    @classmethod
    def _open(cls, elf: ElfFile) -> Self | None:
        section = elf.sections.get(".eh_frame")
        if section is not None and section.nobits:
            return None
        frames = (section.vaddr, section.size) if section is not None and section.vaddr else None
        hdr = _hdr_vaddr(elf)
        if hdr is None:
            return None if frames is None else cls(elf, None, frames)
        try:
            table, start = _read_hdr(elf, hdr)
            return cls(elf, table, frames or (start, elf.file_bytes_after(start)))
        except SymbolizerError:
            if frames is None:
                raise
            return cls(elf, None, frames)

    def ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        """Return the rules of the function around `vaddr`, ascending; () where there are none.

        In a PLT, those of the entry around `vaddr`. Raises a SymbolizerError if the tables are
        corrupt.
        """
        with self._elf.allowance:
            return self._ranges(vaddr)

    def _ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        around = self._scan_for if self._table is None else self._table.entries_around
        entry, following = around(vaddr)
        if entry is None:
            return ()
        cie, program = self._fde(entry)
        if program.start <= vaddr < program.end:
            return rule_ranges(cie.machine, cie.state, program, vaddr)
        if cie.machine.is_signal and vaddr == program.end:
            return self._behind(cie, program)
        if following is None:
            return ()
        return self._between(vaddr, cie, program, *self._fde(following))

    def _behind(self, cie: _Cie, program: Program) -> tuple[RuleRange, ...]:
        """The rule right behind a signal's trampoline, which ends with a system call.

        While the kernel executes that, the thread is at the address behind it.
        """
        last = rule_ranges(cie.machine, cie.state, program, program.end - 1)[-1:]
        return tuple(
            RuleRange(rule_range.end, rule_range.end + 1, rule_range.rule) for rule_range in last
        )

    def _between(
        self, vaddr: int, cie: _Cie, program: Program, next_cie: _Cie, begun: Program
    ) -> tuple[RuleRange, ...]:
        """The rule of instructions that both the parent and the new thread run after a clone.

        In glibc's clone3 no entry has them: they follow the system call, between the entry of the
        parent's code and that of the thread's, which has no caller
        (sysdeps/unix/sysv/linux/x86_64/clone3.S, glibc 2.36). The word on the thread's stack is 0;
        in clone it is a function, which would look like the caller.
        """
        if not program.end <= vaddr < begun.start <= program.end + _MAX_GAP_BYTES:
            return ()
        last = rule_ranges(cie.machine, cie.state, program, program.end - 1)[-1:]
        first = rule_ranges(next_cie.machine, next_cie.state, begun, begun.start)[:1]
        if [rule_range.rule for rule_range in (*last, *first)] != [
            _AT_ENTRY,
            UnwindRule(RuleKind.END),
        ]:
            return ()
        # A gap before _start is padding.
        is_clone = self._elf.read(program.end, len(_SYSCALL)) == _SYSCALL
        if not is_clone or self._elf.read(begun.start, len(_POPS)) == _POPS:
            return ()
        return (RuleRange(program.end, begun.start, _AT_ENTRY),)

    def _entry(self, vaddr: int, limit_bytes: int = _MAX_ENTRY_BYTES) -> bytes:
        """Return an entry with its length, which is 0 behind the last entry."""
        left = self._elf.file_bytes_after(vaddr)
        data = self._elf.read(vaddr, min(left, _FIRST_READ_BYTES))
        size = int.from_bytes(take(data, 0, 4), "little") + 4
        if size > min(left, limit_bytes):
            raise DwarfError(f"the unwind entry at {vaddr:#x} claims {size} bytes")
        return data[:size] if size <= len(data) else self._elf.read(vaddr, size)

    def _fde(self, vaddr: int) -> tuple[_Cie, Program]:
        """Return the entry of a function; its program begins behind the fields not used here."""
        data = self._entry(vaddr)
        back = int.from_bytes(take(data, 4, 4), "little")
        if back == 0:
            raise DwarfError(f"the unwind entry at {vaddr:#x} is not one of a function")
        cie = self._cie(vaddr + 4 - back)
        encoding = cie.machine.encoding
        start, position = pointer(data, 8, encoding, vaddr)
        size, position = pointer(data, position, encoding & 0x0F, vaddr)
        if cie.has_augmentation:
            length, position = uleb(data, position)
            position += length
        if position > len(data) or start + size >= 1 << 64:
            raise DwarfError(f"the unwind entry at {vaddr:#x} contradicts itself")
        return cie, Program(data, vaddr, position, start, start + size)

    def _cie(self, vaddr: int) -> _Cie:
        cie = self._cies.get(vaddr)
        if cie is None:
            if len(self._cies) >= _MAX_CIES:
                self._cies.clear()
            cie = self._cies[vaddr] = _parse_cie(self._entry(vaddr, _MAX_CIE_BYTES), vaddr)
        return cie

    def _scan_for(self, vaddr: int) -> tuple[int | None, int | None]:
        """As entries_around, without a table: read all entries once, up to a corrupt one."""
        if self._scanned is None:
            self._scanned = self._scan()
        starts, entries = self._scanned
        index = bisect_right(starts, vaddr)
        before = entries[index - 1] if index else None
        return before, entries[index] if index < len(entries) else None

    def _scan(self) -> tuple[list[int], list[int]]:
        position, size = self._frames
        end = position + size
        entries: list[tuple[int, int]] = []
        try:
            for _ in range(_MAX_SCANNED):
                data = self._entry(position) if position < end else b""
                if len(data) <= 4:
                    break
                if data[4:8] != bytes(4):
                    entries.append((self._fde(position)[1].start, position))
                position += len(data)
        except SymbolizerError:
            pass
        entries.sort()
        return [start for start, _ in entries], [entry for _, entry in entries]


def _hdr_vaddr(elf: ElfFile) -> int | None:
    """Return the address of .eh_frame_hdr, also of files without section headers."""
    header = elf.read_offset(0, 64)
    table, size, count = struct.unpack_from("<Q14xHH", header, 32)
    for index in range(min(count, _MAX_PROGRAM_HEADERS)):
        kind, vaddr = struct.unpack("<I12xQ", elf.read_offset(table + index * size, 24))
        if kind == _PT_GNU_EH_FRAME:
            return int(vaddr)
    return None


def _read_hdr(elf: ElfFile, vaddr: int) -> tuple[_Table | None, int]:
    """Return the table, None if it is not of the usual form, and the address of .eh_frame."""
    left = elf.file_bytes_after(vaddr)
    data = elf.read(vaddr, min(left, 4 + 8 + 8))
    version, frames_encoding, count_encoding, table_encoding = take(data, 0, 4)
    if version != _HDR_VERSION:
        raise DwarfError(f".eh_frame_hdr has the unknown version {version}")
    frames, position = pointer(data, 4, frames_encoding, vaddr)
    if table_encoding != _TABLE_ENCODING or count_encoding == PE_OMIT:
        return None, frames
    count, position = pointer(data, position, count_encoding, vaddr)
    count = min(count, (left - position) // _PAIR_BYTES)
    return (_Table(elf, vaddr, vaddr + position, count) if count else None), frames


def _parse_cie(data: bytes, vaddr: int) -> _Cie:
    if take(data, 4, 4) != bytes(4):
        raise DwarfError(f"the unwind entry at {vaddr:#x} is not a common one (CIE)")
    version = take(data, 8, 1)[0]
    end = data.find(b"\0", 9, 9 + _MAX_AUGMENTATION_BYTES)
    if version not in _CIE_VERSIONS or end < 0:
        raise DwarfError(f"the unwind entry at {vaddr:#x} has an unknown version")
    augmentation = data[9:end]
    code_align, position = uleb(data, end + 1)
    data_align, position = sleb(data, position)
    address, position = (
        (take(data, position, 1)[0], position + 1) if version == 1 else uleb(data, position)
    )
    if address != RETURN_ADDRESS:
        raise DwarfError(f"the unwind entry at {vaddr:#x} is not for x86-64")
    encoding, is_signal, program = _augmented(augmentation, data, position, vaddr)
    machine = Machine(code_align, data_align, encoding, is_signal)
    return _Cie(machine, Program(data, vaddr, program), augmentation[:1] == b"z")


def _augmented(letters: bytes, data: bytes, position: int, vaddr: int) -> tuple[int, bool, int]:
    """Return the encoding of addresses, whether it is a signal's, the offset of the program."""
    encoding, is_signal = 0, False
    if not letters:
        return encoding, is_signal, position
    if letters[:1] != b"z":
        raise DwarfError(f"the unwind entry at {vaddr:#x} has an unknown augmentation")
    size, position = uleb(data, position)
    end = position + size
    for letter in letters[1:]:
        match chr(letter):
            case "R":
                encoding, position = take(data, position, 1)[0], position + 1
            case "L":  # C++: the encoding of the handlers' table
                position += 1
            case "P":  # C++: the personality function
                _, position = pointer(data, position + 1, take(data, position, 1)[0] & 0x0F, vaddr)
            case "S":
                is_signal = True
            case _:
                raise DwarfError(f"the unwind entry at {vaddr:#x} has an unknown augmentation")
    if not position <= end <= len(data):
        raise DwarfError(f"the unwind entry at {vaddr:#x} runs past its end")
    return encoding, is_signal, end
