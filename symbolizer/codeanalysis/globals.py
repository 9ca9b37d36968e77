"""Addresses of the runtime's variables, found in the code that uses them.

Stripped programs have no symbol table, but pclntab still names every function.
"""

import re
from typing import Final

from symbolizer.codeanalysis.operands import is_variable, operands
from symbolizer.elf.file import ElfFile
from symbolizer.errors import GoTableError
from symbolizer.go.binary import Function, GoBinary
from symbolizer.go.once import once
from symbolizer.x86.disasm import bare_instructions, decode

_FOR_EACH_G: Final = "runtime.forEachG"
_FIND_OBJECT: Final = "runtime.findObject"
_CHECK_DEAD: Final = "runtime.checkdead"
_SET_STATUS: Final = "runtime.casgstatus"
_RECORD_TIME: Final = "runtime.(*timeHistogram).record"
_END_OF_MARKING: Final = "runtime.gcMarkTermination"
_ACCUMULATE: Final = "runtime.(*cpuStats).accumulate"
_RELATIVE: Final = re.compile(r"\[rip ([+-] 0x[0-9a-f]+)\]")
_MAX_CODE_BYTES = 4096
_WORD_BYTES = 8
_SLICE_BYTES = 3 * _WORD_BYTES


@once
def allgs_address(binary: GoBinary) -> int:
    """Return the linked address of runtime.allgs, a slice {pointer, length, capacity}.

    runtime.forEachG (runtime/proc.go, Go 1.17 to 1.27) loads it first: the pointer, then the
    length. Where locks have ranks (GOEXPERIMENT=staticlockranking), it loads that of
    runtime.allglock before. Raises GoTableError if its code differs.
    """
    ranks = 1 if binary.layout.offset("mutex", "key") else 0
    for function in binary.functions_named(_FOR_EACH_G):
        loads = _loaded_words(binary.elf, function)[ranks : ranks + 2]
        if (
            len(loads) == 2
            and loads[1] == loads[0] + _WORD_BYTES
            and is_variable(binary.elf, loads[0], _SLICE_BYTES)
        ):
            return loads[0]
    raise GoTableError(
        f"{_FOR_EACH_G} does not load the list of goroutines first: this program was compiled in "
        "an unknown way"
    )


@once
def arenas_address(binary: GoBinary) -> int:
    """Return the linked address of runtime.mheap_.arenas[0], a pointer to the table of arenas.

    runtime.findObject (runtime/mbitmap.go, Go 1.19 to 1.27) loads it first. Raises GoTableError if
    its code differs.
    """
    for function in binary.functions_named(_FIND_OBJECT):
        loads = _loaded_words(binary.elf, function)[:1]
        if loads and is_variable(binary.elf, loads[0], _WORD_BYTES):
            return loads[0]
    raise GoTableError(
        f"{_FIND_OBJECT} does not load the table of arenas first: this program was compiled in an "
        "unknown way"
    )


@once
def allp_address(binary: GoBinary) -> int | None:
    """Return the linked address of runtime.allp, a slice of the scheduler's processors.

    It is the only slice that runtime.checkdead loads (runtime/proc.go, Go 1.19 to 1.27). None if
    the code differs.
    """
    for function in binary.functions_named(_CHECK_DEAD):
        loads = set(_loaded_words(binary.elf, function))
        slices = [load for load in loads if load + _WORD_BYTES in loads]
        if len(slices) == 1 and is_variable(binary.elf, slices[0], _SLICE_BYTES):
            return slices[0]
    return None


@once
def scheduling_latencies(binary: GoBinary) -> int | None:
    """Return the linked address of runtime.sched.timeToRun, a runtime.timeHistogram.

    The histogram has how long goroutines waited in a run queue, for one time in eight that they
    start to run. runtime.casgstatus passes its address on, or in Go 1.19 counts itself: then the
    code refers to its beginning and its last word (runtime/proc.go, Go 1.19 to 1.27). None if the
    code differs.
    """
    records = {function.entry for function in binary.functions_named(_RECORD_TIME)}
    size = binary.layout.size("timeHistogram")
    for function in binary.functions_named(_SET_STATUS):
        length = min(function.end - function.entry, _MAX_CODE_BYTES)
        code = decode(binary.elf.read(function.entry, length), function.entry)
        latencies: list[int] = []
        for instruction in code:
            if instruction.refers_to:
                latencies.append(instruction.refers_to)
            if instruction.is_call and instruction.target in records:
                latencies = latencies[-1:]
                break
        else:
            latencies = [start for start in latencies if start + size - _WORD_BYTES in latencies]
        if len(latencies) == 1 and is_variable(binary.elf, latencies[0], size):
            return latencies[0]
    return None


@once
def scheduler_address(binary: GoBinary) -> int | None:
    """Return the linked address of runtime.sched, which has timeToRun. None if the code differs."""
    latencies = scheduling_latencies(binary)
    if latencies is None:
        return None
    address = latencies - binary.layout.offset("schedt", "timeToRun")
    return address if is_variable(binary.elf, address, binary.layout.size("schedt")) else None


@once
def cpu_statistics_address(binary: GoBinary) -> int | None:
    """Return the linked address of runtime.work.cpuStats, a runtime.cpuStats.

    runtime.gcMarkTermination passes it to its method accumulate (runtime/mgc.go, Go 1.21 to 1.27).
    None before Go 1.21, which has no such statistics or method, and if the code differs.
    """
    if "cpuStats" not in binary.layout.structs:
        return None
    methods = {f"{function.entry:#x}" for function in binary.functions_named(_ACCUMULATE)}
    for function in binary.functions_named(_END_OF_MARKING):
        length = min(function.end - function.entry, _MAX_CODE_BYTES)
        address, displacement = 0, None
        for bare_instruction in bare_instructions(
            binary.elf.read(function.entry, length), function.entry
        ):
            if displacement is not None:  # counts from the end of the instruction
                address = bare_instruction.address + displacement
            if bare_instruction.mnemonic == "call" and bare_instruction.operands in methods:
                break
            match = (
                _RELATIVE.search(bare_instruction.operands)
                if bare_instruction.mnemonic == "lea"
                else None
            )
            displacement = int(match[1].replace(" ", ""), 16) if match else None
        else:
            address = 0
        if address and is_variable(binary.elf, address, binary.layout.size("cpuStats")):
            return address
    return None


def _loaded_words(elf: ElfFile, function: Function) -> list[int]:
    """Return the addresses of the 8-byte variables that the function loads, in code order."""
    return [
        operand.address
        for operand in operands(elf, function)
        if operand.loads and operand.size == _WORD_BYTES
    ]
