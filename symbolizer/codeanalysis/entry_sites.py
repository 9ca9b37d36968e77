"""Where to put a probe at the beginning of a function: its arguments are still in registers."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from symbolizer.x86.disasm import Instruction


def behind_check(instructions: Iterable[Instruction], register: str = "rax") -> int | None:
    """The cheapest instruction on the one way behind the stack check; None if there is none.

    `register` has there what the caller put into it. A goroutine passes the place once in each
    call: behind the check the function does not begin again on a larger stack.
    """
    past_check, emulated = False, None
    for instruction in instructions:
        if past_check and instruction.is_cheap:
            return instruction.address
        if past_check and instruction.emulated and emulated is None:
            emulated = instruction.address
        if register in instruction.written or (
            past_check and (instruction.is_call or instruction.is_jump)
        ):
            break
        past_check = past_check or instruction.is_jump
    return emulated


def at_entry(instructions: Iterable[Instruction], registers: Collection[str]) -> int | None:
    """The cheapest instruction at the beginning of a function that runs on a thread's own
    stack.

    There the stack check's jump will do: such a stack never grows. `registers` have there what the
    caller put into them. None if no instruction there is emulated.
    """
    emulated = None
    for instruction in instructions:
        if instruction.is_cheap:
            return instruction.address
        if instruction.emulated and not instruction.is_call and emulated is None:
            emulated = instruction.address
        if (
            instruction.is_call
            or instruction.is_jump
            or not instruction.written.isdisjoint(registers)
        ):
            break
    return emulated
