"""Objects of known types in a target's memory: where their fields are, which a stack points to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.distinct import distinct
from ebpfprof.goruntime.heap.program_types import program_types

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.process import GoTarget
    from symbolizer.go.type_descriptors import StructField, TypeDescriptors

WORD: Final = np.dtype("<u8")
WORD_BYTES: Final = 8
_STACK_BYTES: Final = 1 << 13  # of a stack that are searched
_FIRST_PAGES: Final = 1 << 16
_END: Final = 1 << 47  # of addresses of a process (Linux Documentation/arch/x86/x86_64/mm.rst)


class ObjectFields:
    """Reads objects of one target. Reads the descriptors of its types once, when they are needed.

    Its methods raise TargetGone, and UnreadableMemory if the descriptors can't be read.
    """

    def __init__(self, go: GoTarget) -> None:
        self._go, self._memory = go, go.target.memory

    @property
    def types(self) -> TypeDescriptors:
        """The types of the program."""
        return program_types(self._memory, self._go.binary, self._go.load_bias)

    def of(self, type_name: str, *names: str) -> dict[str, StructField]:
        """Fields of a struct that Go code writes so ("sql.DB"); {} unless it has all of them."""
        for address in self.types.structs_named(type_name):
            known = self.types.at(address)
            fields = {field.name: field for field in known.fields} if known else {}
            if set(names) <= fields.keys():
                return {name: fields[name] for name in names}
        return {}

    def words(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The word at each address, 0 where nothing can be read."""
        values: npt.NDArray[np.uint64] = self._memory.read_records(addresses, WORD)
        return values

    def word(self, address: int) -> int:
        """The word at an address, 0 if it can't be read."""
        return int(self.words(np.array([address], np.uint64))[0])

    def text(self, address: int, *, most: int = 256) -> str:
        """The string whose header is at an address; "" if it is longer or can't be read."""
        start, length = self.word(address), self.word(address + WORD_BYTES)
        return self._memory.read(start, length).decode(errors="replace") if length <= most else ""

    def with_words(self, goroutine: Goroutine, wanted: Mapping[int, Collection[int]]) -> list[int]:
        """The pointers on a stack to objects that have one of some words at each of these offsets.

        [] if there is no stack in memory.
        """
        objects = self.pointers(goroutine)
        for offset, words in wanted.items():
            has_it = np.isin(self.words(objects + np.uint64(offset)), list(words))
            objects = objects[has_it]
        matching: list[int] = objects.tolist()
        return matching

    def pointers(self, goroutine: Goroutine) -> npt.NDArray[np.uint64]:
        """The words of a stack that may be pointers to objects elsewhere, each once."""
        stack = goroutine.words
        size = min(stack.hi - stack.sp, _STACK_BYTES) // WORD_BYTES * WORD_BYTES
        if not stack.sp or size <= 0:
            return np.zeros(0, np.uint64)
        words: npt.NDArray[Any] = distinct(np.frombuffer(self._memory.read(stack.sp, size), WORD))
        is_pointer = (words > _FIRST_PAGES) & (words < _END) & (words % WORD_BYTES == 0)
        is_pointer &= (words < stack.sp) | (words >= stack.hi)
        pointers: npt.NDArray[np.uint64] = words[is_pointer].astype(np.uint64)
        return pointers
