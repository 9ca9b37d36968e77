"""The descriptors of the types of a running program."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from symbolizer.go.type_descriptors import MAX_BYTES, TypeDescriptors, has_flags_in_offsets

if TYPE_CHECKING:
    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary

_known: WeakKeyDictionary[GoBinary, tuple[int, TypeDescriptors]] = WeakKeyDictionary()


def program_types(memory: Memory, binary: GoBinary, load_bias: int) -> TypeDescriptors:
    """The types by runtime address, read once for as long as the program is open.

    Raises TargetGone or UnreadableMemory.
    """
    known = _known.get(binary)
    if known is None or known[0] != load_bias:
        start, end = binary.types
        size = end - start
        data = memory.read(start + load_bias, size) if 0 < size <= MAX_BYTES else b""
        old = has_flags_in_offsets(binary.layout)
        types = TypeDescriptors(data, start + load_bias, flags_in_offsets=old)
        known = _known[binary] = load_bias, types
    return known[1]
