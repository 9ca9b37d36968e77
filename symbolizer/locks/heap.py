"""Names of locks on the heap without DWARF: the types that can have a lock where it lies.

The runtime knows of an object the size of its slot and whether it has pointers; of many that have
some, from Go 1.22 on, the type. A lock at an offset in it can be a field of those types only whose
values, alone or as elements of a slice, get such a slot and have a lock of its kind there. The
functions that lock it exclude types whose lock they can't name: those of other packages, but for
exported and embedded fields. A name is given only where all types that are left share it.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from symbolizer.go.type_descriptors import TypeDescriptor, TypeDescriptors
from symbolizer.locks.names import Caller
from symbolizer.locks.types import (
    LOCK_TYPES,
    LockName,
    Names,
    package_of,
    without_type_arguments,
)

# runtime/sizeclasses.go, Go 1.19 to 1.27.
_CLASSES: Final = (
    *(0, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320),
    *(352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792),
    *(2048, 2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376, 6144, 6528, 6784, 6912, 8192, 9472),
    *(9728, 10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480, 21760, 24576, 27264),
    *(28672, 32768),
)
_PAGE_BYTES: Final = 8192
_TINY_BYTES: Final = 16
_MAX_NESTED: Final = 12
_MAX_KNOWN: Final = 1 << 12
_MAX_STRUCTS: Final = 1 << 17
_RECEIVER: Final = re.compile(r"^\(\*([^()]+)\)\.")
_WANTED: Final = {"sync.Mutex": ("sync.Mutex", "internal/sync.Mutex")}


@dataclass(frozen=True, slots=True)
class HeapObject:
    """What the runtime knows of an object on the heap, and where in it a lock lies.

    `slot_bytes` is the size of its slot, `header_bytes` of what the runtime keeps before the object
    in it, `offset` that of the lock in the object. `type` is the address of its type's descriptor,
    or that of its elements; 0 if the runtime keeps none.
    """

    slot_bytes: int
    header_bytes: int
    offset: int
    has_pointers: bool
    type: int = 0


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A lock of a type: its names, the fields on the way as (is_open, package), and who has it.

    `owners` are the names of the types that hold it by value.
    """

    names: Names
    way: tuple[tuple[bool, str], ...]
    owners: frozenset[str]


class HeapLockNames:
    """Names the locks of one process by the descriptors of its types."""

    def __init__(self, types: TypeDescriptors) -> None:
        self._types = types
        self._addresses, self._sizes = types.structs()
        self._known: dict[tuple[HeapObject, str], list[_Candidate]] = {}
        self._by_name: dict[str, list[int]] | None = None

    def name(self, heap_object: HeapObject, callers: Sequence[Caller], kind: str) -> str | None:
        """The name of the lock in the object, such as "main.Cache.mu"; None unless it is sure.

        `kind` is "sync.Mutex" or "sync.RWMutex"; `callers` are functions that locked it.
        """
        key = heap_object, kind
        if key not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = self._candidates(heap_object, _WANTED.get(kind, (kind,)))
        candidates = self._known[key]
        able = [
            candidate
            for candidate in candidates
            if all(_can_lock(caller, candidate) for caller in callers)
        ]
        # Without a method of the very type, a function that locks what it is given a pointer to
        # could lock any of them.
        has_method = any(owner_of(c) in candidate.owners for c in callers for candidate in able)
        left = able if heap_object.type or has_method else candidates
        if not able or not left:
            return None
        shared = set.intersection(*(set(candidate.names) for candidate in left))
        return next((str(name) for name in able[0].names if name in shared), None)

    def of_receiver(self, owner: str, offset: int, kind: str) -> str | None:
        """The name of the lock at an offset in a value of the type named `owner`: "main.Cache.mu".

        None without such a type, or if types of this name that have a lock there differ: instances
        of a generic type, or types that functions declare.
        """
        if self._by_name is None:
            self._by_name = {}
            for address in self._addresses[:_MAX_STRUCTS].tolist():
                known = self._types.at(address)
                if known and known.name:
                    shown = without_type_arguments(known.name)
                    self._by_name.setdefault(shown, []).append(address)
        wanted = _WANTED.get(kind, (kind,))
        candidates = [
            self._lock_at(type_address, offset, wanted)
            for type_address in self._by_name.get(owner, ())
        ]
        names = {
            str(candidate.names[0]) for candidate in candidates if candidate and candidate.names
        }
        return names.pop() if len(names) == 1 else None

    def _candidates(self, heap_object: HeapObject, wanted: Sequence[str]) -> list[_Candidate]:
        if heap_object.type:
            known = self._types.at(heap_object.type)
            if known is None or not known.size:
                return []
            candidate = self._lock_at(heap_object.type, heap_object.offset % known.size, wanted)
            return [candidate] if candidate else []
        least, most = _sizes_in(heap_object)
        if not 0 <= heap_object.offset < most or (
            most <= _TINY_BYTES and not heap_object.has_pointers
        ):
            return []  # nothing, or a block that tiny objects of different types share
        multiples = np.uint64(most) // self._sizes
        fits = (multiples * self._sizes >= np.uint64(least)) & (multiples > 0)
        fits &= np.uint64(heap_object.offset) < multiples * self._sizes
        candidates = []
        for address, size in zip(
            self._addresses[fits].tolist(), self._sizes[fits].tolist(), strict=True
        ):
            known = self._types.at(address)
            if known is not None and known.has_pointers == heap_object.has_pointers:
                candidate = self._lock_at(address, heap_object.offset % size, wanted)
                if candidate:
                    candidates.append(candidate)
        return candidates

    def _lock_at(self, address: int, offset: int, wanted: Sequence[str]) -> _Candidate | None:
        """The lock at an offset in a value of the type at the address; None without one."""
        names: Names = ()
        way: list[tuple[bool, str]] = []
        owners: set[str] = set()
        home = ""
        for _ in range(_MAX_NESTED):
            kind = self._types.at(address)
            if kind is None:
                return None
            if kind.name in wanted:
                return _Candidate(names, tuple(way), frozenset(owners)) if not offset else None
            if kind.name in LOCK_TYPES:
                return None
            if kind.element:
                element = self._types.at(kind.element)
                if element is None or not element.size:
                    return None
                address, offset = kind.element, offset % element.size
                names = _longer(names, "[]")
                continue
            if kind.name:
                home, shown = kind.package, without_type_arguments(kind.name)
                names, owners = (*names, LockName(shown, "")), owners | {shown}
            field = self._field_at(kind, offset)
            if field is None:
                return None
            name, address, start, is_open = field
            names, offset = _longer(names, f".{name}"), offset - start
            way.append((is_open, home))
        return None

    def _field_at(self, kind: TypeDescriptor, offset: int) -> tuple[str, int, int, bool] | None:
        for field in kind.fields:
            if field.offset <= offset:
                inner = self._types.at(field.type)
                if inner is not None and offset < field.offset + inner.size:
                    return field.name, field.type, field.offset, field.is_open
        return None


def _sizes_in(heap_object: HeapObject) -> tuple[int, int]:
    """The least and the largest size in bytes of objects that get such a slot."""
    slot = heap_object.slot_bytes
    at = bisect_left(_CLASSES, slot)
    if at < len(_CLASSES) and _CLASSES[at] == slot:
        below = _CLASSES[max(at - 1, 0)]
    else:
        below = slot - _PAGE_BYTES  # an object that has its own span
    return max(1, below + 1 - heap_object.header_bytes), slot - heap_object.header_bytes


def _can_lock(caller: Caller, candidate: _Candidate) -> bool:
    """Whether code of the function reaches the lock by its fields, or as its receiver's own."""
    package = package_of(caller.function)
    return owner_of(caller) in candidate.owners or all(
        is_open or home in ("", package) for is_open, home in candidate.way
    )


def owner_of(caller: Caller) -> str:
    """The type that has the function as its method, "main.Box[...]"; "" without one."""
    package = package_of(caller.function)
    receiver = _RECEIVER.match(caller.function[len(package) + 1 :]) if package else None
    return without_type_arguments(f"{package}.{receiver[1]}") if receiver else ""


def _longer(names: Names, path: str) -> Names:
    return tuple(LockName(name.base, name.path + path) for name in names)
