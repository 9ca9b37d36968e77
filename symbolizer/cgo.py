"""How a goroutine's stack goes on where C called back into Go.

runtime.cgocallback runs on the thread's own stack and lets the callback run on the goroutine's,
below what the goroutine had there when it called C. The saved frame pointer of the callback
leads into C, so frame pointers alone lose the callers. Go's own unwinder knows the distances
(runtime/asm_amd64.s, cgocallback and gosave_systemstack_switch; Go 1.19 to 1.27).
"""

from dataclasses import dataclass

from symbolizer.disasm import decode
from symbolizer.gobinary import Function, GoBinary

_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class CgoCallback:
    """Distances in bytes from the frame pointer of the function that cgocallback called.

    The frame whose return address is `return_pc` is that function's. `switch_offset` leads to
    the return address `switch_pc`, which Go puts there for its unwinder; `frame_offset` to the
    next frame (saved frame pointer, return address) of the goroutine that called C. Before
    frame pointers in assembly (Go 1.21) another return address stands between, at
    `caller_offset`; 0 if none. The pcs are addresses as linked.
    """

    return_pc: int
    switch_pc: int
    switch_offset: int
    caller_offset: int
    frame_offset: int


def cgo_callback(binary: GoBinary) -> CgoCallback | None:
    """The distances in this program; None if it has no callbacks or lays them out otherwise.

    Raises GoTableError if the tables contradict themselves.
    """
    call = _callback_call(binary)
    switch_pc = _switch_pc(binary)
    if call is None or switch_pc is None:
        return None
    call_pc, return_pc = call
    switch_offset = 2 * _WORD_BYTES + binary.sp_delta(call_pc)
    behind_switch = switch_offset + _WORD_BYTES
    if binary.sp_delta(switch_pc) == _WORD_BYTES:
        return CgoCallback(return_pc, switch_pc, switch_offset, 0, behind_switch)
    deltas = {binary.sp_delta(pc) for pc in _calls(binary, "runtime.cgocall", "runtime.asmcgocall")}
    if len(deltas) != 1:
        return None
    return CgoCallback(
        return_pc, switch_pc, switch_offset, behind_switch, behind_switch + deltas.pop()
    )


def _callback_call(binary: GoBinary) -> tuple[int, int] | None:
    """Where cgocallback calls cgocallbackg: the call's address and its return address."""
    callbacks = {each.entry for each in binary.functions_named("runtime.cgocallbackg")}
    for function in binary.functions_named("runtime.cgocallback"):
        named = None
        for each in decode(_code(binary, function), function.entry):
            if each.is_call and (each.target in callbacks or named in callbacks):
                return each.address, each.end
            named = each.refers_to
    return None


def _switch_pc(binary: GoBinary) -> int | None:
    """The address that gosave_systemstack_switch stores as the goroutine's pc."""
    for function in binary.functions_named("gosave_systemstack_switch"):
        for each in decode(_code(binary, function), function.entry):
            if each.refers_to is not None:
                return each.refers_to
    return None


def _calls(binary: GoBinary, caller: str, called: str) -> list[int]:
    """Addresses of the calls of `called` in `caller`."""
    callers = binary.functions_named(caller)
    return [
        call_pc
        for function in binary.functions_named(called)
        for call_pc in binary.call_sites(function)
        if binary.function_at(call_pc) in callers
    ]


def _code(binary: GoBinary, function: Function) -> bytes:
    return binary.elf.read(function.entry, function.end - function.entry)
