"""Unwinding rules for Go code, from pclntab: what Go's own unwinder goes by."""

from typing import Final

from symbolizer.errors import GoTableError
from symbolizer.gobinary import Function, GoBinary
from symbolizer.goruntime import FuncRole
from symbolizer.unwind import RuleKind, RuleRange, UnwindRule

_TOP_FRAME: Final = 1  # abi.FuncFlagTopFrame
_SP_WRITE: Final = 2  # abi.FuncFlagSPWrite
_WORD_BYTES = 8
_MINOR_OF_SAVED_PC: Final = 21
_MAX_OFFSET_BYTES = (1 << 31) - 1
# The signal's return, named differently over the versions (runtime/sys_linux_amd64.s).
_SIGNAL_RETURNS: Final = ("runtime.sigreturn", "runtime.sigreturn__sigaction")
# Marked as the top of a stack in newer versions; below lies who was interrupted.
_SIGNAL_ENTRY: Final = "runtime.sigtramp"
_INTERRUPTED: Final = (FuncRole.SIGPANIC, FuncRole.ASYNC_PREEMPT)


class GoUnwind:
    """The rules of a Go program's functions (runtime/traceback.go, unwinder.resolveInternal)."""

    def __init__(self, binary: GoBinary) -> None:
        self._binary = binary

    def ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        """The rules of the function around `vaddr`; () outside of Go's text.

        Raises GoTableError if the tables are corrupt.
        """
        function = self._binary.function_at(vaddr)
        if function is None:
            return ()
        if function.end <= function.entry:
            raise GoTableError(f"the function at {function.entry:#x} has no code")
        whole = self._whole(function)
        if whole is not None:
            return (RuleRange(function.entry, function.end, UnwindRule(whole)),)
        return tuple(
            RuleRange(start, end, self._rule(function, delta))
            for start, end, delta in self._binary.sp_deltas(function)
        )

    def _whole(self, function: Function) -> RuleKind | None:
        """The kind of rule for all of a function, where that does not depend on the address."""
        if function.name in _SIGNAL_RETURNS:
            return RuleKind.SIGNAL
        if function.name == _SIGNAL_ENTRY:
            return None
        role = self._binary.layout.role(function.func_id)
        if role is FuncRole.MORESTACK:
            return RuleKind.MORE_STACK
        if function.flags & _TOP_FRAME:
            return RuleKind.END
        if role in (FuncRole.SYSTEMSTACK, FuncRole.CGOCALLBACK):
            return None  # both write SP, and both arrange that one can unwind through them
        return RuleKind.SWITCH if function.flags & _SP_WRITE else None

    def _rule(self, function: Function, delta: int) -> UnwindRule:
        if not 0 <= delta <= _MAX_OFFSET_BYTES - _WORD_BYTES:
            return UnwindRule(RuleKind.NONE)
        role = self._binary.layout.role(function.func_id)
        kind = RuleKind.SYSTEM_STACK if role is FuncRole.SYSTEMSTACK else RuleKind.SP
        # A signal's return address is the first byte of what returns from it.
        is_exact = role in _INTERRUPTED or function.name == _SIGNAL_ENTRY
        # Up to Go 1.20, so is what gosave_systemstack_switch saves for callbacks to return to.
        is_exact |= role is FuncRole.CGOCALLBACK and self._binary.version.minor < _MINOR_OF_SAVED_PC
        # Where a function has a frame, the assembler saves the frame pointer at its top.
        bp_offset = -2 * _WORD_BYTES if delta >= _WORD_BYTES else None
        return UnwindRule(kind, delta + _WORD_BYTES, bp_offset, exact_caller=is_exact)
