"""The heap, its statistics and its pacer: variables of the runtime, found in code that uses them.

runtime.(*mcache).refill (runtime/mcache.go, Go 1.19 to 1.27) loads mheap_.sweepgen, takes the
address of mheap_.central, then twice that of memstats.heapStats, which is at its beginning, then
that of gcController.totalAlloc, and last that of gcController itself. How far these lie behind the
beginnings of their structs is known, so that each address is confirmed by two sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from symbolizer.codeanalysis.operands import is_variable, operands
from symbolizer.errors import GoTableError, TooOldGo

if TYPE_CHECKING:
    from symbolizer.go.binary import GoBinary
    from symbolizer.go.runtime_layout import RuntimeLayout

_REFILL: Final = "runtime.(*mcache).refill"


@dataclass(frozen=True, slots=True)
class MemoryGlobals:
    """Linked addresses of runtime.mheap_, runtime.memstats and runtime.gcController."""

    heap: int
    statistics: int
    controller: int


def memory_globals(binary: GoBinary) -> MemoryGlobals:
    """Find the variables. Raises GoTableError if the code is not as known."""
    layout = binary.layout
    require_statistics(layout)
    sweepgen, central = (layout.offset("mheap", name) for name in ("sweepgen", "central"))
    total = layout.offset("gcControllerState", "totalAlloc")
    for function in binary.functions_named(_REFILL):
        used = operands(binary.elf, function)
        generations = [operand.address for operand in used if operand.loads and operand.size == 4]
        named = [operand.address for operand in used if operand.is_address]
        if not generations:
            continue
        heap = generations[0] - sweepgen
        at = named.index(heap + central) if heap + central in named else len(named)
        statistics, again, alloc, *rest = [*named[at + 1 :], 0, 0, 0]
        controller = alloc - total
        variables = MemoryGlobals(heap, statistics, controller)
        if statistics == again and controller in rest and _are_variables(binary, variables):
            return variables
    raise GoTableError(
        f"{_REFILL} does not use the heap as in known versions of Go: this program was compiled in "
        "an unknown way"
    )


def require_statistics(layout: RuntimeLayout) -> None:
    """Raise TooOldGo for a version that keeps statistics of its heap elsewhere: Go 1.17, 1.18.

    They have neither gcController.totalAlloc nor a lock of their own for the memory profile.
    """
    if not layout.has("gcControllerState", "totalAlloc"):
        raise TooOldGo(
            f"Go {layout.version} keeps the statistics of its heap in other places, which are not "
            "read: Go 1.19 or newer is needed"
        )


def _are_variables(binary: GoBinary, variables: MemoryGlobals) -> bool:
    sizes = ("mheap", "mstats", "gcControllerState")
    addresses = (variables.heap, variables.statistics, variables.controller)
    return all(
        is_variable(binary.elf, address, binary.layout.size(name))
        for address, name in zip(addresses, sizes, strict=True)
    )
