"""The pc that is stored for a goroutine while it runs on its thread's stack.

Before runtime.asmcgocall leaves the goroutine's stack, gosave_systemstack_switch stores an address
in runtime.systemstack_switch as the goroutine's pc, for Go's unwinder to find
(runtime/asm_amd64.s). That is the function's entry in Go 1.20 and older, a little behind it later.
"""

from symbolizer.go.binary import GoBinary
from symbolizer.x86.disasm import decode

_SAVE_SWITCH = "gosave_systemstack_switch"


def saved_switch_pc(binary: GoBinary) -> int | None:
    """Return that pc as linked, None if the program's code does not have it.

    Raises GoTableError if the tables contradict themselves.
    """
    for function in binary.functions_named(_SAVE_SWITCH):
        code = binary.elf.read(function.entry, function.end - function.entry)
        for instruction in decode(code, function.entry):
            if instruction.refers_to is not None:
                return instruction.refers_to
    return None
