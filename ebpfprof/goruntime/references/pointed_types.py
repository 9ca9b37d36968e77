"""The types of objects as far as memory has them: dynamic types, closures, those of the heap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.references.object_types import PARTS, UNKNOWN, Ask, Form
from ebpfprof.goruntime.references.parts import WORD_BYTES
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ebpfprof.goruntime.references.object_types import ObjectTypes, ReferenceStep
    from ebpfprof.process.memory import Memory

    Numbers = npt.NDArray[np.int64]
    Words = npt.NDArray[np.uint64]

_END: Final = 1 << 47  # of addresses of a process
_WORD: Final = np.dtype("<u8")
_ITAB_TYPE_AT: Final = 8
_MAX_ITABS: Final = 1 << 18


class PointedTypes:
    """Where references lead, by what must be read to know it (Ask)."""

    def __init__(
        self, types: ObjectTypes, memory: Memory, function_name: Callable[[int], str]
    ) -> None:
        """`function_name` names the function that begins at an address; "" for none."""
        self._types, self._memory, self._function_name = types, memory, function_name
        self._recorded: dict[tuple[int, int], int] = {}
        self._itabs: dict[int, int] = {}

    def asked(self, ask: Ask, kinds: Numbers, places: Words, targets: Words) -> Numbers:
        """The types of targets, by their addresses, and by `places`: those of the references.

        `kinds` are the types as the references alone say them. Raises TargetGone.
        """
        match ask:
            case Ask.TYPE_BEFORE | Ask.ITAB_BEFORE:
                words = self._memory.read_records(places - np.uint64(WORD_BYTES), _WORD)
                if ask is Ask.ITAB_BEFORE:
                    itabs, which = np.unique(words, return_inverse=True)
                    type_at = itabs + np.uint64(_ITAB_TYPE_AT)
                    words = self._memory.read_records(type_at, _WORD)[which]
                return self._dynamic(words, targets)
            case Ask.TABLES_BEHIND:
                words = self._memory.read_records(places + np.uint64(WORD_BYTES), _WORD)
                return np.where(words == 0, self._only_groups(kinds), kinds)
        return self._closures(targets)

    def _only_groups(self, kinds: Numbers) -> Numbers:
        unique, which = np.unique(kinds, return_inverse=True)
        return np.array([self._types.only_group(kind) for kind in unique.tolist()], np.int64)[which]

    def _dynamic(self, words: Words, targets: Words) -> Numbers:
        unique, which = np.unique(words, return_inverse=True)
        known = [self._of_dynamic(word) for word in unique.tolist()]
        dynamic: Numbers = np.array([kind for kind, _ in known], np.int64)[which]
        are = np.array([is_function for _, is_function in known], np.bool_)
        are_functions = np.flatnonzero(are[which])
        if len(are_functions):
            dynamic[are_functions] = self._closures(targets[are_functions])
        return dynamic

    def _of_dynamic(self, word: int) -> tuple[int, bool]:
        return self._types.of_dynamic(word) if 0 < word < _END else (UNKNOWN, False)

    def _closures(self, targets: Words) -> Numbers:
        """The types of closures: each has its function's name."""
        unique, which = np.unique(self._memory.read_records(targets, _WORD), return_inverse=True)
        kinds = np.array([self._closure_of(word) for word in unique.tolist()], np.int64)
        closures: Numbers = kinds[which]
        return closures

    def _closure_of(self, function: int) -> int:
        return self._types.number(Form.CLOSURE, name=self._function_name(function))

    def asked_one(self, step: ReferenceStep, place: int, target: int) -> int:
        """As asked(), for one reference. What can't be read counts as 0. Raises TargetGone."""
        match step.ask:
            case Ask.TABLES_BEHIND:
                is_only = not self._word(place + WORD_BYTES)
                return self._types.only_group(step.type) if is_only else step.type
            case Ask.FUNCTION:
                return self._closure_of(self._word(target))
        word = self._word(place - WORD_BYTES)
        if step.ask is Ask.ITAB_BEFORE:
            if word not in self._itabs:
                if len(self._itabs) >= _MAX_ITABS:
                    self._itabs.clear()
                self._itabs[word] = self._word(word + _ITAB_TYPE_AT)
            word = self._itabs[word]
        kind, is_function = self._of_dynamic(word)
        return self._closure_of(self._word(target)) if is_function else kind

    def _word(self, address: int) -> int:
        try:
            return int.from_bytes(self._memory.read(address, WORD_BYTES), "little")
        except UnreadableMemory:  # as read_records() has it
            return 0

    def fitted(self, kind: int, size: int, recorded: int, *, is_first: bool) -> int:
        """The type of an object in a slot of `size` bytes, to which a pointer of a type leads.

        `recorded` is the address of the type that the heap records of it, which is exact; 0 for
        none.
        """
        if recorded and self._types[kind].form not in PARTS:
            key = recorded, size
            if key not in self._recorded:
                self._recorded[key] = self._types.of_header(recorded, size)
            if known := self._recorded[key]:
                return known
        return self._types.fitting(kind, size, is_first=is_first)
