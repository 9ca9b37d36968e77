"""How to find the caller of a frame: one form for what Go's tables and .eh_frame say.

A rule holds for a range of code. It tells where the canonical frame address (CFA) is: the stack
pointer of the caller after the return. On x86-64 the return address lies right below it.
"""

from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Protocol


@unique
class RuleKind(IntEnum):
    """What a rule says; numbers are those of bpf/cpu/table_unwind.h."""

    UNKNOWN = 0
    SP = 1
    """CFA = stack pointer + cfa_offset."""
    BP = 2
    """CFA = frame pointer + cfa_offset."""
    BP_POINTS = 3
    """CFA = the word at frame pointer + cfa_offset; the caller's frame pointer the one at it."""
    END = 4
    """The outermost frame: nobody called it."""
    SIGNAL = 5
    """A signal's trampoline: the registers of who was interrupted lie at the stack pointer."""
    SYSTEM_STACK = 6
    """runtime.systemstack: as SP, but on the goroutine's own stack if this is the thread's."""
    MORE_STACK = 7
    """runtime.morestack: the stack goes on where the goroutine left its own."""
    SWITCH = 8
    """Go code that writes the stack pointer: the runtime's records tell where it goes on."""
    NONE = 9
    """There is nothing that tells where the caller is."""
    GUESS = 10
    """As BP, for code that no table knows."""


@dataclass(frozen=True, slots=True)
class UnwindRule:
    """Where a frame's caller is; offsets in bytes.

    The caller's frame pointer lies at CFA + `bp_offset`; None: it is in the register still.
    `exact_caller`: the caller was interrupted, its pc is no return address.
    """

    kind: RuleKind
    cfa_offset: int = 0
    bp_offset: int | None = None
    exact_caller: bool = False


@dataclass(frozen=True, slots=True)
class RuleRange:
    """A rule for the code in [start, end); virtual addresses as linked."""

    start: int
    end: int
    rule: UnwindRule


class UnwindTable(Protocol):
    """Whatever knows the rules of an ELF file's code."""

    def ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        """The rules of the function around `vaddr`, ascending; () where nothing is known.

        Raises a SymbolizerError where the tables are corrupt.
        """
        ...
