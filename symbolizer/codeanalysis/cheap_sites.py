"""The cheapest instruction to probe on the way to a call.

The kernel emulates calls and pushes by writing to the target's stack. Emulating a jump or a nop
takes a tenth less of the whole trap (tests/bench/bench_traps.py).
"""

from __future__ import annotations

from typing import Final

from symbolizer.x86.disasm import BareInstruction, bare_instructions

_MOST_BYTES: Final = 96
_MOST_STEPS: Final = 1 << 14
# With another frame, or another goroutine, the registers say something else there.
_KEPT: Final = ("rbp", "rsp", "r14")


def before_call(code: bytes, address: int, call_pc: int) -> int:
    """The nearest jump or nop before the call at `call_pc` that is passed if and only if that is.

    `code` is the function's, from its first byte, which is at `address`. R14, the frame and the
    stack are the same there as at the call, and nothing is called in between. Returns `call_pc` if
    there is no such place.
    """
    listed = list(bare_instructions(code, address))[:_MOST_STEPS]
    places = [index for index, step in enumerate(listed) if step.address == call_pc]
    if not places:
        return call_pc
    call = places[0]
    for index in range(call - 1, 0, -1):
        step = listed[index]
        if call_pc - step.address > _MOST_BYTES or not _is_plain(step):
            return call_pc
        if step.is_cheap and _leads_only_to(listed, index, call):
            return step.address
    return call_pc


def _is_plain(step: BareInstruction) -> bool:
    """Whether it keeps the frame and R14, and leads to a known place."""
    if step.is_jump:
        return step.target is not None
    name, operands = step.mnemonic, step.operands
    leaves = name in ("call", "ret", "ud2", "int3", "push", "pop", "leave", "syscall")
    return not leaves and not operands.startswith(_KEPT)


def _leads_only_to(listed: list[BareInstruction], first: int, call: int) -> bool:
    """Whether all ways from one step lead to the call, and all ways to the call by that step."""
    begin, end = listed[first].address, listed[call].address
    return all(
        (begin < step.target <= end) == (first <= index < call)
        for index, step in enumerate(listed)
        if step.target is not None
    )
