"""What the caches of the scheduler's processors have allocated that statistics have not counted.

Objects in a span that a processor has cached count as allocated when it is given back
(runtime/mcache.go, refill and releaseAll, Go 1.19 to 1.27). In Go 1.17 and 1.18 all its slots count
as allocated as soon as it is cached, so that free ones are counted too many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.records import record
from symbolizer.codeanalysis.globals import allp_address
from symbolizer.errors import GoTableError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary

_MAX_PROCESSORS: Final = 1 << 12
_SPAN: Final = (
    *(("count", "allocCount", "<u2"), ("class", "spanclass", "u1"), ("slot", "elemsize", "<u8")),
)
_COUNTED: Final = "allocCountBeforeCache"


class ProcessorCaches:
    """Reads the caches of one target."""

    def __init__(self, memory: Memory, binary: GoBinary, load_bias: int) -> None:
        """Raises GoTableError if the code does not show where the processors are."""
        self._memory, self._layout = memory, binary.layout
        allp = allp_address(binary)
        if allp is None:
            raise GoTableError(
                "runtime.checkdead does not load the list of processors: this program was compiled "
                "in an unknown way"
            )
        self._allp = allp + load_bias
        layout = binary.layout
        self._classes = len(layout.size_classes)
        spans = f"({2 * self._classes},)<u8"  # one for objects with pointers, one for others
        self._cache = record(
            layout, "mcache", [("tiny", "tinyAllocs", "<u8"), ("spans", "alloc", spans)]
        )
        self._counts_slots = not layout.has("mspan", _COUNTED)
        counted = ("nelems", "<u8") if self._counts_slots else (_COUNTED, "<u2")
        self._span = record(layout, "mspan", [*_SPAN, ("counted", *counted)])

    def pending(self) -> tuple[npt.NDArray[np.uint64], int]:
        """What to add to the objects of each size class, and the tiny ones within others.

        Numbers are unsigned: adding one that stands for -1 subtracts 1, modulo 2**64. Raises
        TargetGone or UnreadableMemory.
        """
        memory, allocated = self._memory, np.zeros(self._classes, np.uint64)
        pointer, length = np.frombuffer(memory.read(self._allp, 16), "<u8").tolist()
        count = min(length, _MAX_PROCESSORS)
        if not count:
            return allocated, 0
        processors = np.frombuffer(memory.read(pointer, 8 * count), "<u8")
        at = processors + np.uint64(self._layout.offset("p", "mcache"))
        caches = memory.read_records(at, np.dtype("<u8"))
        rows = memory.read_records(caches[caches != 0], self._cache)
        spans = memory.read_records(rows["spans"].reshape(-1), self._span)
        more = spans["count"].astype(np.int64) - spans["counted"].astype(np.int64)
        is_cached = (spans["slot"] != 0) & (more < 0 if self._counts_slots else more > 0)
        classes = (spans["class"][is_cached] >> 1).astype(np.int64)
        np.add.at(
            allocated, np.minimum(classes, self._classes - 1), more[is_cached].astype(np.uint64)
        )
        return allocated, int(rows["tiny"].sum())
