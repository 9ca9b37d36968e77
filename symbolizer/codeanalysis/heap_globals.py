"""The variables of Go's own memory profile, found in the code that uses them.

Each function named here is in every program, also where the linker left the memory profile out
(runtime/mprof.go and runtime/mcache.go, Go 1.17 to 1.27).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from symbolizer.codeanalysis.operands import Operand, is_variable, operands
from symbolizer.errors import GoTableError

if TYPE_CHECKING:
    from symbolizer.go.binary import GoBinary

_FLUSH_LOCKED: Final = "runtime.mProf_FlushLocked"
_FLUSH: Final = "runtime.mProf_Flush"
_FREE: Final = "runtime.mProf_Free"
_SWEEP_ONE: Final = "runtime.sweepone"
_NEW_CACHE: Final = "runtime.allocmcache"
_NEXT_SAMPLE: Final = "runtime.nextSample"  # inlined, as a rule
_WORD_BYTES: Final = 8
# The linker turns the profiler off unless one of them is reachable (cmd/link/internal/ld/lib.go).
_READERS: Final = ("runtime.MemProfile", "runtime.memProfileInternal")


@dataclass(frozen=True, slots=True)
class HeapGlobals:
    """Linked addresses of the memory profile's variables.

    `buckets` is runtime.mbuckets, the first bucket; `rate` runtime.MemProfileRate, an int;
    `cycle` runtime.mProfCycle, 4 bytes: the number of the cycle, shifted by `cycle_shift` bits,
    because bit 0 says whether it has been flushed; `active_lock` runtime.profMemActiveLock, a word
    that is 0 while it is free; `sweep` runtime.sweep.active.state, 4 bytes: how many sweep, and in
    bit 31 whether all is taken.

    In Go 1.17 and 1.18 the cycle is the first word of runtime.mProf, which runtime.proflock
    guards; in Go 1.17 `sweep` is runtime.mheap_.sweepDrained, 4 bytes, before mheap_.sweepers.
    """

    buckets: int
    rate: int
    cycle: int
    cycle_shift: int
    active_lock: int
    sweep: int


def heap_globals(binary: GoBinary) -> HeapGlobals:
    """Find the variables. Raises GoTableError if a function's code is not as known."""
    # Code that was compiled without optimizations takes addresses where other code loads words.
    draws = _NEXT_SAMPLE if any(binary.functions_named(_NEXT_SAMPLE)) else _NEW_CACHE
    rates = [operand for operand in _operands(binary, draws) if operand.loads]
    locks = [operand for operand in _operands(binary, _FLUSH) if operand.is_address]
    lock = _checked(binary, _FLUSH, locks[-1:])
    of_free = _operands(binary, _FREE)
    has_old_lock = of_free[:1] != [] and of_free[0].address == lock
    cycles = [operand for operand in of_free if operand.address != lock]
    return HeapGlobals(
        _checked(binary, _FLUSH_LOCKED, _operands(binary, _FLUSH_LOCKED)[-1:]),
        _checked(binary, draws, rates[:1] if draws == _NEXT_SAMPLE else rates[-1:]),
        _checked(binary, _FREE, cycles[:1], 4),
        0 if has_old_lock else 1,
        lock,
        _checked(binary, _SWEEP_ONE, _operands(binary, _SWEEP_ONE)[:1], 4),
    )


def has_memory_profile(binary: GoBinary) -> bool:
    """Whether the program can read its own memory profile. Else the linker turned that off."""
    return any(True for name in _READERS for _ in binary.functions_named(name))


def _operands(binary: GoBinary, name: str) -> list[Operand]:
    for function in binary.functions_named(name):
        return operands(binary.elf, function)
    raise GoTableError(f"the program has no function {name}: its memory profile can't be read")


def _checked(
    binary: GoBinary, name: str, candidates: list[Operand], size: int = _WORD_BYTES
) -> int:
    """The address of the one operand, if it can be that of such a variable."""
    for operand in candidates:
        if operand.size in (0, size) and is_variable(binary.elf, operand.address, size, size):
            return operand.address
    raise GoTableError(
        f"{name} does not use the variables of the memory profile as in known versions of Go: "
        "this program was compiled in an unknown way"
    )
