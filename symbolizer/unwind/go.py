"""Unwinding rules for Go code, from pclntab, which Go's own unwinder uses."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Final

from capstone import x86_const

from symbolizer.errors import GoTableError
from symbolizer.frames import FuncRole
from symbolizer.go.binary import Function, GoBinary
from symbolizer.go.stack_switch import saved_switch_pc
from symbolizer.unwind.rules import RuleKind, RuleRange, UnwindRule
from symbolizer.x86.disasm import detailed_decoder

_TOP_FRAME: Final = 1  # abi.FuncFlagTopFrame
_SP_WRITE: Final = 2  # abi.FuncFlagSPWrite
_WORD_BYTES = 8
_MAX_OFFSET_BYTES = (1 << 31) - 1
_MAX_CODE_BYTES = 512  # of systemstack, which has 160
# What a signal handler returns to; its name depends on the version (runtime/sys_linux_amd64.s).
_SIGNAL_RETURNS: Final = ("runtime.sigreturn", "runtime.sigreturn__sigaction")
# Newer versions mark it as the top of a stack, but the interrupted code is below it.
_SIGNAL_ENTRY: Final = "runtime.sigtramp"
_POP_R12: Final = b"\x41\x5c"
_INTERRUPTED: Final = (FuncRole.SIGPANIC, FuncRole.ASYNC_PREEMPT)


class GoUnwind:
    """The rules of a Go program's functions (runtime/traceback.go, unwinder.resolveInternal)."""

    def __init__(self, binary: GoBinary) -> None:
        self._binary = binary

    @cached_property
    def _callbacks_return_to_an_entry(self) -> bool:
        """Whether the return address of cgocallback is the entry of a function."""
        pc = saved_switch_pc(self._binary)
        function = None if pc is None else self._binary.function_at(pc)
        return function is not None and function.entry == pc

    def ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        """Return the rules of the function around `vaddr`; () outside of Go's text.

        Raises a SymbolizerError if the tables are corrupt.
        """
        function = self._binary.function_at(vaddr)
        if function is None:
            return ()
        if function.end <= function.entry:
            raise GoTableError(f"the function at {function.entry:#x} has no code")
        whole = self._whole(function)
        if whole is not None:
            return (RuleRange(function.entry, function.end, UnwindRule(whole)),)
        deltas = self._binary.sp_deltas(function)
        rules = [
            RuleRange(start, end, self._rule(function, delta, start))
            for start, end, delta in deltas
        ]
        if self._binary.layout.role(function.func_id) is FuncRole.SYSTEMSTACK:
            rules = _on_thread_stack(rules, _stack_switches(self._binary, function))
        return tuple(rules)

    def _whole(self, function: Function) -> RuleKind | None:
        """The kind of rule for a whole function, None where it depends on the address."""
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
            return None  # both write SP, and both keep what is needed to unwind through them
        return RuleKind.SWITCH if function.flags & _SP_WRITE else None

    def _rule(self, function: Function, delta: int, start: int) -> UnwindRule:
        if delta == -_WORD_BYTES and self._has_popped_r12(function, start):
            return UnwindRule(RuleKind.IN_R12)
        if not 0 <= delta <= _MAX_OFFSET_BYTES - _WORD_BYTES:
            return UnwindRule(RuleKind.NONE)
        role = self._binary.layout.role(function.func_id)
        # A signal's return address is the first byte of what returns from it.
        is_exact = role in _INTERRUPTED or function.name == _SIGNAL_ENTRY
        is_exact |= role is FuncRole.CGOCALLBACK and self._callbacks_return_to_an_entry
        # Where a function has a frame, the assembler saves the frame pointer at its top.
        bp_offset = -2 * _WORD_BYTES if delta >= _WORD_BYTES else None
        return UnwindRule(RuleKind.SP, delta + _WORD_BYTES, bp_offset, exact_caller=is_exact)

    def _has_popped_r12(self, function: Function, at: int) -> bool:
        """Whether the instruction before `at` takes the return address from the stack into R12.

        syscall.rawVforkSyscall does (syscall/asm_linux_amd64.s), since its child process uses the
        same stack.
        """
        start = at - len(_POP_R12)
        return start >= function.entry and self._binary.elf.read(start, at - start) == _POP_R12


def _stack_switches(binary: GoBinary, function: Function) -> range:
    """Return the code of systemstack that runs on the thread's stack, not on its caller's.

    It loads the stack pointer twice, to switch to that stack and back. Before that, and where it is
    already on the thread's stack and only jumps to the function, it is on its caller's. If the code
    is unknown, all of it counts as on the thread's stack.
    """
    code = binary.elf.read(function.entry, min(function.end - function.entry, _MAX_CODE_BYTES))
    loads = [
        int(instruction.address + instruction.size)
        for instruction in detailed_decoder().disasm(code, function.entry)
        if instruction.id == x86_const.X86_INS_MOV
        and instruction.operands[0].type == x86_const.X86_OP_REG
        and instruction.operands[0].reg == x86_const.X86_REG_RSP
    ]
    return range(*loads) if len(loads) == 2 else range(function.entry, function.end)


def _on_thread_stack(rules: Sequence[RuleRange], there: range) -> list[RuleRange]:
    """Return the rules of systemstack; on the thread's stack, they lead to its caller's."""
    ranges = []
    for rule_range in rules:
        cuts = sorted(
            {
                rule_range.start,
                rule_range.end,
                *(at for at in (there.start, there.stop) if rule_range.start < at < rule_range.end),
            }
        )
        for start, end in pairwise(cuts):
            rule = rule_range.rule
            if rule.kind is RuleKind.SP and start in there:
                rule = replace(rule, kind=RuleKind.SYSTEM_STACK)
            ranges.append(RuleRange(start, end, rule))
    return ranges
