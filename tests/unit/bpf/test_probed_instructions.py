"""The registers of a thread that entered the kernel at a probe (bpf/cpu/cpu.bpf.c).

The kernel emulates the probed instruction. It changes the stack pointer and the pc one by one, and
a sample may come in between.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from ebpfprof.kernel import c_facts
from ebpfprof.profilers.cpu.partial_samples import Unfinished
from ebpfprof.profilers.cpu.unwinder import (
    MAX_DEPTH,
    Code,
    CodeLookup,
    Cursor,
    GoState,
    ProcessRules,
    RuleNumbers,
    StackPieces,
)
from symbolizer.unwind.rules import RuleKind, RuleRange, UnwindRule
from tests.unit.bpf.native import Native, build

pytestmark = pytest.mark.machine

PROGRAM = """
#include "cpu/cpu.bpf.c"
/* From `behind` on, the caller's frame is so many bytes further away. */
void teach(u64 behind, u64 further_bytes) {
    struct line line;
    u64 key = behind >> LINE_SHIFT;
    rules_rows[1] = (struct rule){8, 0, SP, 0};
    rules_rows[2] = (struct rule){8 + further_bytes, 0, SP, 0};
    for (int i = 0; i < LINE_BYTES; i++)
        line.rules[i] = 1 + (i >= (behind & (LINE_BYTES - 1)));
    lines.update(&key, &line);
}
/* Moves pc and sp to where the thread's own code goes on, if the rules are known. */
u64 enter(struct pt_regs *registers) {
    static struct work work;
    work.behind_breakpoint = work.at_breakpoint = 0;
    user_registers(registers, 0, &work);
    registers->ip = work.at.pc;
    registers->sp = work.at.sp;
    return work.behind_breakpoint | work.at_breakpoint << 1;
}
"""
MACROS = {
    "WITH_KERNEL": 1,
    "WITH_LABELS": 0,
    **{"MAX_TARGETS": 1, "TARGETS": 1},
    "MAX_DEPTH": MAX_DEPTH,
    "MAX_SAMPLES": 4,
    "MAX_LINES": 4,
    "MAX_RULES": 4,
    "RING_PAGES": 1,
    "FS_BASE_OFFSET": 0,
    "MEMORY_OFFSET": 0,
    "SIGNAL_STACK_OFFSET": 0,
    "SIGNAL_STACK_BYTES_OFFSET": 0,
}
REGISTERS = c_facts.struct("headers/include/linux/types.h", "pt_regs")
BREAKPOINT, USER_MODE, CALL_BYTES = (
    c_facts.number("cpu/cpu.bpf.c", name) for name in ("BREAKPOINT", "USER_MODE", "CALL_BYTES")
)
NOP = 0x90
PROBE, CALLER, STACK, FRAME = 0x40_1008, 0x40_2000, 0xC000_0000_10, 0xC000_0000_80
BEHIND_CALL = PROBE + CALL_BYTES


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return Native(build(tmp_path_factory.mktemp("cpu"), PROGRAM, MACROS))


class Functions(CodeLookup):
    """All code is one function with a push of one byte, or another instruction, at PROBE."""

    def __init__(self, further_bytes: int) -> None:
        self._further_bytes = further_bytes

    def ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        """The rules before and behind the instruction at PROBE."""
        return (
            RuleRange(PROBE - 8, PROBE + 1, UnwindRule(RuleKind.SP, 8)),
            RuleRange(PROBE + 1, PROBE + 64, UnwindRule(RuleKind.SP, 8 + self._further_bytes)),
        )

    def code_at(self, address: int) -> Code | None:
        return Code(self, 0)

    def is_code(self, address: int) -> bool:
        return True


def entered(native: Native, pc: int, top: int, *, pushes: bool = True) -> tuple[int, int]:
    """Where a thread continues that is in the kernel with this pc and this word on its stack: its
    pc and stack pointer. The kernel and user space, which decides if rules are missing, must agree.
    """
    native.call("forget_maps")
    without = _in_kernel(native, pc, top)
    native.call("teach", PROBE + 1, 8 if pushes else 0)
    known, found = _in_kernel(native, pc, top)
    assert not known
    if without[0]:
        rules = ProcessRules(Functions(8 if pushes else 0), RuleNumbers(4))
        at = Cursor(pc, STACK, FRAME, True)
        copies = StackPieces([(STACK, struct.pack("<Q", top))])
        pending = (bool(without[0] & 1), bool(without[0] & 2))
        Unfinished(0, 0, 1, (), (), at, GoState(), copies, *pending).leave_breakpoint(rules)
        assert (at.pc, at.sp) == found
    else:
        assert without[1] == found
    return found


def _in_kernel(
    native: Native, pc: int, top: int, first: int = BREAKPOINT
) -> tuple[int, tuple[int, int]]:
    code = bytes([*[NOP] * 8, first, *[NOP] * 8])
    native.set_memory([(PROBE - 8, code), (STACK, struct.pack("<Q", top))])
    registers: Any = np.zeros(1, REGISTERS)
    registers["ip"], registers["cs"] = pc, USER_MODE
    registers["sp"], registers["bp"] = STACK, FRAME
    pending = native.call("enter", registers)
    return pending, (int(registers["ip"][0]), int(registers["sp"][0]))


@pytest.mark.parametrize(
    ("pc", "top", "goes_on"),
    [
        pytest.param(PROBE + 1, CALLER, (PROBE, STACK), id="trapped"),
        pytest.param(PROBE, CALLER, (PROBE, STACK), id="to be emulated"),
        pytest.param(PROBE, FRAME, (PROBE, STACK + 8), id="not yet behind it"),
        pytest.param(PROBE + 1, FRAME, (PROBE + 1, STACK), id="done"),
    ],
)
def test_at_a_push_the_stack_pointer_is_that_of_the_pc(
    pc: int, top: int, goes_on: tuple[int, int], native: Native
) -> None:
    assert entered(native, pc, top) == goes_on


@pytest.mark.parametrize(
    ("pc", "top", "goes_on"),
    [
        pytest.param(PROBE + 1, CALLER, (PROBE, STACK), id="trapped"),
        pytest.param(BEHIND_CALL, CALLER, (BEHIND_CALL, STACK), id="to push"),
        pytest.param(BEHIND_CALL, BEHIND_CALL, (BEHIND_CALL, STACK + 8), id="to jump"),
        pytest.param(PROBE, FRAME, (PROBE, STACK), id="an old frame pointer on top"),
        pytest.param(PROBE + 1, FRAME, (PROBE, STACK), id="trapped, with such a one"),
    ],
)
def test_at_a_call_the_stack_pointer_is_that_of_the_pc(
    pc: int, top: int, goes_on: tuple[int, int], native: Native
) -> None:
    assert entered(native, pc, top, pushes=False) == goes_on


@pytest.mark.parametrize("pc", [PROBE, PROBE + 1, BEHIND_CALL])
@pytest.mark.parametrize("top", [FRAME, BEHIND_CALL, CALLER])
def test_without_a_breakpoint_the_registers_are_right(pc: int, top: int, native: Native) -> None:
    assert _in_kernel(native, pc, top, first=NOP) == (0, (pc, STACK))
