"""Names of locks on the heap of a target, by what its runtime keeps of the objects there."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import numpy as np

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.arenas import PAGE_SHIFT, Arenas
from ebpfprof.goruntime.heap.program_types import program_types
from ebpfprof.goruntime.records import record
from ebpfprof.process.memory import Memory
from symbolizer import GoTableError, SymbolizerError
from symbolizer.codeanalysis.receiver_locks import ReceiverLocks
from symbolizer.locks.heap import HeapLockNames, HeapObject, owner_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.process import GoTarget
    from symbolizer import GoBinary
    from symbolizer.go.runtime_layout import RuntimeLayout
    from symbolizer.go.type_descriptors import TypeDescriptors
    from symbolizer.locks.names import Caller

_MAX_PAGES: Final = 1 << 35
_IN_USE: Final = 1  # mSpanInUse
# Go 1.22 and later: an object with pointers of more than 512 bytes has its type before it
# (runtime/mbitmap.go, heapBitsInSpan), one with a span of its own in the span.
_LARGEST_WITHOUT_HEADER: Final = 512
_HEADER_BYTES: Final = 8
_SPAN: Final = (
    *(("start", "startAddr", "<u8"), ("pages", "npages", "<u8"), ("slot", "elemsize", "<u8")),
    *(("class", "spanclass", "u1"), ("state", "state", "u1"), ("type", "largeType", "<u8")),
)


class HeapLocks:
    """Names locks on the heap of one target; reads nothing before the first lookup."""

    def __init__(self, go: GoTarget) -> None:
        self._go = go
        self._receivers: ReceiverLocks | None = None

    def name(self, address: int, callers: Sequence[Caller], kind: str) -> str | None:
        """The name of the lock at a runtime address; None unless it is sure.

        `callers` are functions that locked it, `kind` is "sync.Mutex" or "sync.RWMutex".
        """
        try:
            memory = self._go.target.memory
            heap_object = None
            # Where the runtime was compiled without optimization we don't find its arenas.
            with suppress(GoTableError):
                heap_object = object_at(self._go, memory, address)
            names = _names_of(self._go, memory)
            name = names.name(heap_object, callers, kind) if heap_object else None
            return name or self._of_receiver(names, callers, kind)
        except (EbpfprofError, SymbolizerError):
            return None  # then only a name is missing

    def _of_receiver(
        self, names: HeapLockNames, callers: Sequence[Caller], kind: str
    ) -> str | None:
        """The name by the methods that locked it, if their code locks fields of the receiver."""
        if self._receivers is None:
            self._receivers = ReceiverLocks(self._go.binary)
        shared: set[str | None] | None = None
        for caller in callers:
            offsets = self._receivers.offsets(caller.function, caller.pc, kind)
            if offsets:
                names_here = {names.of_receiver(owner_of(caller), at, kind) for at in offsets}
                shared = names_here if shared is None else shared & names_here
        return next(iter(shared)) if shared and len(shared) == 1 else None


def object_at(go: GoTarget, memory: Memory, address: int) -> HeapObject | None:
    """The object on the heap that has the runtime address; None if none has.

    Raises UnreadableMemory, TargetGone, or GoTableError (the table of arenas was not found).
    """
    (span,) = Arenas(memory, go.binary, go.load_bias).spans_at(np.array([address], np.uint64))
    return _object_in(go.binary.layout, memory, int(span), address) if span else None


def _object_in(layout: RuntimeLayout, memory: Memory, span: int, address: int) -> HeapObject | None:
    has_types = layout.has("mspan", "largeType")
    (span_row,) = memory.read_records(np.array([span], np.uint64), record(layout, "mspan", _SPAN))
    start, pages, slot = int(span_row["start"]), int(span_row["pages"]), int(span_row["slot"])
    if int(span_row["state"]) != _IN_USE or not 0 < pages < _MAX_PAGES or slot < _HEADER_BYTES:
        return None
    if not start <= address < start + (pages << PAGE_SHIFT):
        return None
    base = address - (address - start) % slot
    if base + slot > start + (pages << PAGE_SHIFT):
        return None  # behind the last object
    size_class, has_pointers = int(span_row["class"]) >> 1, not int(span_row["class"]) & 1
    kind, header_bytes = 0, 0
    if has_types and has_pointers:
        if size_class == 0:
            kind = int(span_row["type"])
        elif slot > _LARGEST_WITHOUT_HEADER:
            kind, header_bytes = _word(memory, base), _HEADER_BYTES
        if (size_class == 0 or header_bytes) and not kind:
            return None  # it was freed, or is just being made
    offset = address - base - header_bytes
    return HeapObject(slot, header_bytes, offset, has_pointers, kind) if offset >= 0 else None


def _word(memory: Memory, address: int) -> int:
    return int.from_bytes(memory.read(address, 8), "little")


_names: WeakKeyDictionary[GoBinary, tuple[TypeDescriptors, HeapLockNames]] = WeakKeyDictionary()


def _names_of(go: GoTarget, memory: Memory) -> HeapLockNames:
    """The names for a target, kept for as long as its program is open."""
    types = program_types(memory, go.binary, go.load_bias)
    known = _names.get(go.binary)
    if known is None or known[0] is not types:
        known = _names[go.binary] = types, HeapLockNames(types)
    return known[1]
