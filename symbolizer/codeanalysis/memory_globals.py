"""The heap, its statistics and its pacer: variables of the runtime, found in code that uses them.

runtime.(*mcache).refill (runtime/mcache.go, Go 1.17 to 1.27) loads mheap_.sweepgen, takes the
address of mheap_.central, then twice that of memstats.heapStats, then that of a field of
gcController, and last that of gcController itself. How far these lie behind the beginnings of their
structs is known, so that each address is confirmed by two sources. In Go 1.18 only its size
confirms the address of gcController, which is the first that follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from symbolizer.codeanalysis.operands import is_variable, operands
from symbolizer.errors import GoTableError

if TYPE_CHECKING:
    from symbolizer.go.binary import GoBinary

_REFILL: Final = "runtime.(*mcache).refill"
_CONTROLLER: Final = "gcControllerState"
_UPDATE: Final = "runtime.(*gcControllerState).update"  # from Go 1.18 on


@dataclass(frozen=True, slots=True)
class MemoryGlobals:
    """Linked addresses of runtime.mheap_, runtime.memstats and runtime.gcController."""

    heap: int
    statistics: int
    controller: int


def memory_globals(binary: GoBinary) -> MemoryGlobals:
    """Find the variables. Raises GoTableError if the code is not as known."""
    layout = binary.layout
    sweepgen, central = (layout.offset("mheap", name) for name in ("sweepgen", "central"))
    stats = layout.offset("mstats", "heapStats")
    for function in binary.functions_named(_REFILL):
        used = operands(binary.elf, function)
        generations = [operand.address for operand in used if operand.loads and operand.size == 4]
        named = [operand.address for operand in used if operand.is_address]
        if not generations:
            continue
        heap = generations[0] - sweepgen
        spans = heap + central
        for before, statistics, again, *rest in (named[at:] for at in range(len(named) - 2)):
            if before != spans or statistics == spans or statistics != again:
                continue
            controller = _controller(binary, rest)
            variables = MemoryGlobals(heap, statistics - stats, controller)
            if controller and _are_variables(binary, variables):
                return variables
    raise GoTableError(
        f"{_REFILL} does not use the heap as in known versions of Go: this program was compiled in "
        "an unknown way"
    )


def _controller(binary: GoBinary, named: list[int]) -> int:
    """The address of gcController among those that refill names last; 0 if it is unknown."""
    layout = binary.layout
    if not named:
        return 0
    first, *rest = named
    if not layout.has(_CONTROLLER, "totalAlloc") and binary.has_function(_UPDATE):
        return first
    field = "totalAlloc" if layout.has(_CONTROLLER, "totalAlloc") else "heapLive"
    controller = first - layout.offset(_CONTROLLER, field)
    return controller if controller in rest else 0


def _are_variables(binary: GoBinary, variables: MemoryGlobals) -> bool:
    sizes = ("mheap", "mstats", "gcControllerState")
    addresses = (variables.heap, variables.statistics, variables.controller)
    return all(
        is_variable(binary.elf, address, binary.layout.size(name))
        for address, name in zip(addresses, sizes, strict=True)
    )
