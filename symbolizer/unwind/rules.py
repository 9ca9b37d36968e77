"""How to find the caller of a frame: one form of rule for Go's tables and for .eh_frame.

A rule holds for a range of code. It gives the canonical frame address (CFA): the stack pointer of
the caller after the return. On x86-64 the return address is right below it.
"""

from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Protocol


@unique
class RuleKind(IntEnum):
    """The kind of a rule; numbers as in bpf/cpu/table_unwind.h."""

    UNKNOWN = 0
    SP = 1
    """CFA = stack pointer + cfa_offset."""
    BP = 2
    """CFA = frame pointer + cfa_offset."""
    BP_POINTS = 3
    """CFA = the word at frame pointer + cfa_offset; the caller's frame pointer the one at it."""
    END = 4
    """The outermost frame: it has no caller."""
    SIGNAL = 5
    """A signal's trampoline: the registers of the interrupted code are at the stack pointer."""
    SYSTEM_STACK = 6
    """runtime.systemstack: as SP, but on the goroutine's own stack if this is the thread's."""
    MORE_STACK = 7
    """runtime.morestack: the stack continues where the goroutine left its own."""
    SWITCH = 8
    """Go code that writes the stack pointer: the runtime's records have where it continues."""
    NONE = 9
    """No rule: the caller cannot be found."""
    GUESS = 10
    """As BP, for code that is in no table."""
    IN_R12 = 11
    """The return address is in R12, and the stack pointer already that of the caller."""


@dataclass(frozen=True, slots=True)
class UnwindRule:
    """Where a frame's caller is; offsets in bytes.

    The caller's frame pointer is at CFA + `bp_offset`; None: it is still in the register.
    `exact_caller`: the caller was interrupted, so its pc is not a return address.
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
    """A source of rules for an ELF file's code."""

    def ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        """Return the rules of the function around `vaddr`, ascending; () where there are none.

        Raises a SymbolizerError if the tables are corrupt.
        """
        ...
