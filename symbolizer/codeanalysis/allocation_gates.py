"""Where the runtime decides whether its own memory profile samples an allocation: the gates.

A conditional jump guards each call of runtime.profilealloc (runtime/malloc.go, Go 1.19 to 1.27; in
Go 1.27 also malloc_generated.go). Each object that the runtime has allocated passes one such jump
once, whether or not the profile is on, and tiny objects that fit into a block that is there already
pass none: just what Go's profile counts. There, registers and the stack hold the object's address
and the size of its slot. We prove that from the code, or find no gates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from symbolizer.codeanalysis.runtime_functions import RuntimeCode, unknown_code
from symbolizer.x86.disasm import Instruction, detailed_decoder, reachable, successors
from symbolizer.x86.values import Source, derived

if TYPE_CHECKING:
    from symbolizer.go.binary import Function, GoBinary

_PROFILE: Final = "runtime.profilealloc"
_PUBLISH: Final = "runtime.publicationBarrier"
_NEVER_BACK: Final = ("runtime.throw", "runtime.fatal", "runtime.morestack_noctxt")
# The second and third argument of profilealloc(mp, x, size): cmd/compile/abi-internal.md.
_OBJECT, _SIZE = "rbx", "rcx"
_MOST_BYTES: Final = 256  # between a gate and its call
MAX_GATES: Final = 32
"""Go 1.27 has 21, all others at most 5."""


@dataclass(frozen=True, slots=True)
class AllocationGate:
    """A jump that each allocation passes once, by its linked address.

    Before the jump, `object` is the address of what was allocated, `size` what it takes, in bytes.
    """

    pc: int
    object: Source
    size: Source


def allocation_gates(binary: GoBinary) -> tuple[AllocationGate, ...]:
    """Find the gates. Raises GoTableError if the code is not as known."""
    code = RuntimeCode(binary, called=(_PROFILE, _PUBLISH), others=_NEVER_BACK)
    functions: dict[int, tuple[Function, list[int]]] = {}
    for call_pc in code.calls(_PROFILE):
        function = binary.function_at(call_pc)
        if function is None:
            raise unknown_code(f"no function has the call of {_PROFILE} at {call_pc:#x}")
        functions.setdefault(function.entry, (function, []))[1].append(call_pc)
    published = set(code.calls(_PUBLISH))
    never_back = {function.entry for function in code.functions(*_NEVER_BACK)}
    gates = [
        gate
        for function, calls in functions.values()
        for gate in _gates(code, function, calls, published, never_back)
    ]
    if not gates:
        raise unknown_code(f"nothing calls {_PROFILE}")
    if len(gates) > MAX_GATES:
        raise unknown_code(f"{_PROFILE} is called in {len(gates)} places")
    return tuple(sorted(gates, key=lambda gate: gate.pc))


def _gates(
    code: RuntimeCode,
    function: Function,
    calls: list[int],
    published: set[int],
    never_back: set[int],
) -> list[AllocationGate]:
    """The gates of one function that allocates."""
    instructions = {instruction.address: instruction for instruction in code.decoded(function)}
    flow = {
        at: () if instructions[at].target in never_back else leads
        for at, leads in successors(instructions.values()).items()
    }
    if any(call not in flow for call in calls):
        raise unknown_code(f"the code of {function.name} can't be decoded")
    ready = [address for address in published if address in flow]
    jumps = [_gate_of(call, instructions, flow, function, ready) for call in calls]
    around = {at: () if at in jumps else leads for at, leads in flow.items()}
    # Large objects are published again when their pointers are known, behind the gate.
    new = reachable(around, [function.entry]) & set(ready)
    if not new or any(_returns(instructions[at]) for at in reachable(around, new)):
        raise unknown_code(f"not all objects of {function.name} pass a place that we know")
    text = code.binary.elf.read(function.entry, function.end - function.entry)
    raw = {
        instruction.address: instruction
        for instruction in detailed_decoder().disasm(text, function.entry)
    }
    gates = []
    for jump, call in zip(jumps, calls, strict=True):
        arguments = derived(raw, flow, jump, call, (_OBJECT, _SIZE))
        if arguments is None:
            raise unknown_code(f"{function.name} does not show where its allocated object is")
        gates.append(AllocationGate(jump, arguments[0], arguments[1]))
    return gates


def _gate_of(
    call: int,
    instructions: Mapping[int, Instruction],
    flow: dict[int, tuple[int, ...]],
    function: Function,
    ready: list[int],
) -> int:
    """The last jump that all ways from an allocation to a return pass, and all to the call."""
    before = [
        instruction
        for instruction in instructions.values()
        if call - _MOST_BYTES <= instruction.address < call
    ]
    for jump in reversed(before):
        is_conditional = jump.is_jump and jump.falls_through and jump.emulated
        if not is_conditional:
            continue
        if call in reachable(flow, [function.entry], without=jump.address):
            continue
        leading = [at for at in ready if jump.address in reachable(flow, [at])]
        passed = reachable(flow, leading, without=jump.address)
        if leading and not any(_returns(instructions[at]) for at in passed):
            return jump.address
    raise unknown_code(f"no jump guards the call of {_PROFILE} in {function.name}")


def _returns(instruction: Instruction) -> bool:
    return not (instruction.falls_through or instruction.is_jump or instruction.is_call)
