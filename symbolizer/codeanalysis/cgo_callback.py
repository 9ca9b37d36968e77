"""How a goroutine's stack continues where C called back into Go.

runtime.cgocallback runs on the thread's own stack and runs the callback on the goroutine's,
below the frames that the goroutine had when it called C. The callback's saved frame pointer leads
into C, so frame pointers alone lose the callers. Go's own unwinder uses known distances
(runtime/asm_amd64.s, cgocallback and gosave_systemstack_switch; Go 1.19 to 1.27).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from symbolizer.go.binary import Function, GoBinary
from symbolizer.go.stack_switch import saved_switch_pc
from symbolizer.x86.disasm import Instruction, decode

_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class CgoCallback:
    """Distances in bytes from the frame pointer of the function that cgocallback called.

    That function's frame is the one with the return address `return_pc`. At `switch_offset` is
    the return address `switch_pc`, which Go stores for its unwinder; at `frame_offset` the next
    frame (saved frame pointer, return address) of the goroutine that called C. Before assembly
    had frame pointers (Go 1.21), another return address is between them, at `caller_offset`;
    0 if there is none. The pcs are addresses as linked.
    """

    return_pc: int
    switch_pc: int
    switch_offset: int
    caller_offset: int
    frame_offset: int


_CALLBACK = "runtime.cgocallback"
_CALLED_BACK = "runtime.cgocallbackg"
_CALL = "runtime.cgocall"
_ASM_CALL = "runtime.asmcgocall"


def cgo_callback(binary: GoBinary) -> CgoCallback | None:
    """Return the distances in this program; None if it has no callbacks or another layout.

    Raises GoTableError if the tables contradict themselves.
    """
    functions = binary.functions_by_name([_CALLBACK, _CALLED_BACK, _CALL, _ASM_CALL])
    call = _callback_call(binary, functions)
    switch_pc = saved_switch_pc(binary)
    if call is None or switch_pc is None:
        return None
    switch_offset = 2 * _WORD_BYTES + binary.sp_delta(call.address)
    behind_switch = switch_offset + _WORD_BYTES
    if binary.sp_delta(switch_pc) == _WORD_BYTES:
        return CgoCallback(call.end, switch_pc, switch_offset, 0, behind_switch)
    calls = binary.call_sites(*functions[_ASM_CALL]).values()
    callers = [pc for pcs in calls for pc in pcs if binary.function_at(pc) in functions[_CALL]]
    deltas = {binary.sp_delta(pc) for pc in callers}
    if len(deltas) != 1:
        return None
    frame_offset = behind_switch + deltas.pop()
    return CgoCallback(call.end, switch_pc, switch_offset, behind_switch, frame_offset)


def _callback_call(
    binary: GoBinary, functions: Mapping[str, tuple[Function, ...]]
) -> Instruction | None:
    """The instruction with which cgocallback calls cgocallbackg, directly or by register."""
    called_back = {function.entry for function in functions[_CALLED_BACK]}
    for function in functions[_CALLBACK]:
        named = None
        code = binary.elf.read(function.entry, function.end - function.entry)
        for instruction in decode(code, function.entry):
            if instruction.is_call and (instruction.target in called_back or named in called_back):
                return instruction
            named = instruction.refers_to
    return None
