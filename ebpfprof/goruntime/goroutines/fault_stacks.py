"""Walks stacks with a fault (runtime.sigpanic) by the program's tables.

Walks along frame pointers lose the caller of a faulting function that has no frame: sigpanic saves
the frame pointer of that caller as its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.goroutines.stack_walk import Walk
from ebpfprof.goruntime.goroutines.table_walk import StackCopy, TableWalker
from ebpfprof.process.memory import Memory, UnreadableMemory
from symbolizer.errors import SymbolizerError
from symbolizer.go.once import once
from symbolizer.x86.disasm import decode

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from symbolizer.go.binary import GoBinary

_SIGPANIC: Final = "runtime.sigpanic"  # runtime/signal_unix.go, Go 1.19 to 1.27
_MOST_CODE_BYTES: Final = 1 << 14
_MOST_STACK_BYTES: Final = 1 << 18
_MOST_STACKS: Final = 1024  # in one scan: each takes about 100 us


class FaultStacks:
    """Finds and walks the stacks with a fault of one target."""

    def __init__(self, go: GoTarget, memory: Memory) -> None:
        """`memory` is the target's. Without runtime.sigpanic there are no such stacks."""
        self._memory = memory
        self._walker = TableWalker(go.binary, go.load_bias)
        self._returns = {pc + go.load_bias for pc in _return_addresses(go.binary)}
        self._left = 0

    def begin(self) -> None:
        """Begin a scan of all goroutines: in each, a bounded number of stacks is walked."""
        self._left = _MOST_STACKS

    def has_fault(self, pcs: tuple[int, ...]) -> bool:
        """Whether sigpanic is on a stack of return addresses."""
        return not self._returns.isdisjoint(pcs)

    def walk(self, hi: int, pc: int, sp: int, *, most: int) -> Walk | None:
        """The stack that ends at `hi`, with `most` addresses; None if it can't be walked so."""
        if self._left <= 0 or not 0 < hi - sp <= _MOST_STACK_BYTES:
            return None
        self._left -= 1
        try:
            data = self._memory.read(sp, hi - sp)
            copy = StackCopy(pc, sp, hi, is_syscall=False, base=sp, data=data)
            walk = self._walker.walk(copy, most=most)
        except (UnreadableMemory, SymbolizerError):
            return None
        return Walk(walk.pcs, walk.is_whole) if walk.is_whole else None


@once
def _return_addresses(binary: GoBinary) -> frozenset[int]:
    """The linked addresses behind the calls in sigpanic."""
    addresses = set[int]()
    for function in binary.functions_named(_SIGPANIC):
        size = min(function.end - function.entry, _MOST_CODE_BYTES)
        code = decode(binary.elf.read(function.entry, size), function.entry)
        addresses.update(
            instruction.address + instruction.size for instruction in code if instruction.is_call
        )
    return frozenset(addresses)
