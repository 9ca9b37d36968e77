"""Walks stacks by the program's tables where frame pointers don't lead on.

- With a fault (runtime.sigpanic), they lose the caller of a faulting function that has no frame:
  sigpanic saves the frame pointer of that caller as its own.
- Up to Go 1.18, syscall.Syscall is assembly without a frame (syscall/asm_linux_amd64.s), and no
  frame pointer is saved when a system call begins: they end there.
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

_SIGPANIC: Final = "runtime.sigpanic"  # runtime/signal_unix.go, Go 1.17 to 1.27
_FRAMELESS: Final = ("syscall.Syscall", "syscall.Syscall6")
_WITH_FRAMELESS: Final = ("1.17", "1.18")
_MOST_CODE_BYTES: Final = 1 << 14
_MOST_STACK_BYTES: Final = 1 << 18
_MOST_STACKS: Final = 1024  # in one scan: each takes about 100 us


class StacksByTables:
    """Finds and walks these stacks of one target."""

    def __init__(self, go: GoTarget, memory: Memory) -> None:
        """`memory` is the target's."""
        self._memory = memory
        self._walker = TableWalker(go.binary, go.load_bias)
        self._faults = {pc + go.load_bias for pc in _faults(go.binary)}
        self._ends = {pc + go.load_bias for pc in _ends(go.binary)}
        self._left = 0

    def begin(self) -> None:
        """Begin a scan of all goroutines: in each, a bounded number of stacks is walked."""
        self._left = _MOST_STACKS

    def has(self, pcs: tuple[int, ...]) -> bool:
        """Whether it is such a stack, by what frame pointers lead to."""
        return (len(pcs) == 1 and pcs[0] in self._ends) or not self._faults.isdisjoint(pcs)

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
def _faults(binary: GoBinary) -> frozenset[int]:
    """Where what sigpanic calls returns to, as linked."""
    return frozenset(_return_addresses(binary, _SIGPANIC))


@once
def _ends(binary: GoBinary) -> frozenset[int]:
    """Where what functions without a frame call before a system call returns to, as linked."""
    if binary.layout.version not in _WITH_FRAMELESS:
        return frozenset()
    return frozenset(
        pc
        for name in _FRAMELESS
        for pc in _return_addresses(binary, name)
        if binary.sp_delta(pc - 1) == 0
    )


def _return_addresses(binary: GoBinary, name: str) -> set[int]:
    """The linked addresses behind the calls in the functions of that name."""
    addresses = set[int]()
    for function in binary.functions_named(name):
        size = min(function.end - function.entry, _MOST_CODE_BYTES)
        code = decode(binary.elf.read(function.entry, size), function.entry)
        addresses.update(
            instruction.address + instruction.size for instruction in code if instruction.is_call
        )
    return addresses
