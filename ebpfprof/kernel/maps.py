"""BPF maps: created in the size that is wanted, and read many rows at a time."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.errors import KernelUnsupported
from ebpfprof.kernel import features, syscalls
from ebpfprof.kernel.program_source import MapShape
from ebpfprof.kernel.refusals import NOT_ALLOWED, not_offered
from ebpfprof.kernel.ring_buffer import RingReader

if TYPE_CHECKING:  # numpy takes long to import: only when maps are read
    import numpy as np
    import numpy.typing as npt

Fields = Mapping[str, "int | Sequence[int] | Fields"]

_BATCH_ROWS = 4096
_POSSIBLE = Path("/sys/devices/system/cpu/possible")

_NUMBERS: Final[Mapping[str, Any]] = {
    "_Bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "unsigned char": ctypes.c_uint8,
    "short": ctypes.c_int16,
    "unsigned short": ctypes.c_uint16,
    "int": ctypes.c_int32,
    "unsigned int": ctypes.c_uint32,
    "long": ctypes.c_int64,
    "unsigned long": ctypes.c_uint64,
    "long long": ctypes.c_int64,
    "unsigned long long": ctypes.c_uint64,
}


class BpfMap:
    """One map; closing it frees it, unless a loaded program uses it."""

    def __init__(
        self,
        shape: MapShape,
        max_entries: int,
        *,
        grows: bool = False,
        is_mapped: bool = False,
    ) -> None:
        """Create it.

        A hash map that `grows` takes memory as rows come, if the kernel can do that. An array that
        `is_mapped` is read without system calls. Raises KernelUnsupported or PermissionDenied.
        """
        self.name, self._shape = shape.name, shape
        self.max_entries = max_entries
        self._reader: RingReader | None = None
        self._mapped: mmap.mmap | None = None
        self._is_mapped = is_mapped
        flags = syscalls.NO_PREALLOC if grows and features.have_growing_maps() else 0
        try:
            self.fd = syscalls.create_map(
                shape.kind,
                shape.key_bytes,
                shape.value_bytes,
                self.max_entries,
                flags=flags | (syscalls.MMAPABLE if is_mapped else 0),
                name=shape.name,
            )
        except OSError as error:
            if error.errno in NOT_ALLOWED:
                # A kernel without attach cookies may also limit maps by RLIMIT_MEMLOCK (before
                # 5.11).
                features.require_cookies()
            table = f"the map {self.name} of {self.max_entries} rows"
            raise not_offered(table, error, "Is there too little memory?") from error

    @cached_property
    def _key(self) -> Any:  # noqa: ANN401 - a class of ctypes
        return _c_type(self._shape.key)

    @cached_property
    def _value(self) -> Any:  # noqa: ANN401 - a class of ctypes
        return _c_type(self._shape.value)

    @cached_property
    def types(self) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """The C types of keys and values, as numpy's (structs as records)."""
        import numpy as np

        return np.dtype(self._key), np.dtype(self._value)

    def set_struct(self, index: int, fields: Fields) -> None:
        """Write an element of an array of structs, which may be nested; other fields become 0."""
        value = self._value()
        _fill(value, fields)
        key = ctypes.c_uint32(index)
        try:
            syscalls.update_element(self.fd, ctypes.addressof(key), ctypes.addressof(value))
        except OSError as error:
            raise self._element_error(index, error) from error

    def numbers(self) -> npt.NDArray[Any]:
        """All elements of an array of integers: without a system call if it `is_mapped`.

        Raises KernelUnsupported as batches() does.
        """
        if self._is_mapped and self.fd >= 0:
            return self.elements().copy()
        keys, values = self.rows()
        return values[keys.argsort()]

    def sum_at(self, index: int) -> dict[str, int]:
        """An element of an array per processor of structs of integers, summed up."""
        values = (self._value * possible_cpus())()
        self._look_up(index, values)
        names = [name for name, *_ in self._value._fields_]
        return {name: sum(getattr(part, name) for part in values) for name in names}

    def each_at(self, index: int, name: str) -> list[int]:
        """A field of an element of an array per processor of structs, by processor."""
        values = (self._value * possible_cpus())()
        self._look_up(index, values)
        return [int(getattr(part, name)) for part in values]

    def set_each(self, index: int, numbers: Sequence[int]) -> None:
        """Write an element of an array per processor of 64-bit integers."""
        key, values = ctypes.c_uint32(index), (self._value * possible_cpus())(*numbers)
        try:
            syscalls.update_element(self.fd, ctypes.addressof(key), ctypes.addressof(values))
        except OSError as error:
            raise self._element_error(index, error) from error

    def rows(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """All keys and values of a hash map, or an array, as arrays of the C types: batches()."""
        import numpy as np

        keys, values = zip(*self.batches(), strict=True)
        return np.concatenate(keys), np.concatenate(values)

    def batches(self) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """All keys and values of a hash map, or an array, some thousands at a time.

        Rows that come or go meanwhile may be missing; every other row is there once.
        Raises KernelUnsupported if the kernel has no batched lookups (before Linux 5.6).
        """
        import numpy as np

        key_type, value_type = self.types
        position = ctypes.create_string_buffer(max(8, key_type.itemsize))
        start: int | None = None
        most = min(_BATCH_ROWS, self.max_entries)
        while True:
            keys, values = np.zeros(most, key_type), np.zeros(most, value_type)
            addresses = ctypes.addressof(position), keys.ctypes.data, values.ctypes.data
            try:
                count, is_last = syscalls.lookup_batch(self.fd, start, *addresses, most)
            except OSError as error:
                if error.errno == errno.ENOSPC and most < self.max_entries:
                    most = min(most * 2, self.max_entries)  # one hash bucket holds more rows
                    continue
                raise KernelUnsupported(
                    f"The map {self.name} can't be read: {error.strerror}. Linux 5.6 is needed."
                ) from error
            yield keys[:count], values[:count]
            if is_last:
                return
            start = ctypes.addressof(position)

    def update(self, keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> int:
        """Add or replace rows of a hash map; returns how many went in before it was full.

        `keys` and `values` are as long as each other, and have the `types`. Raises
        KernelUnsupported if the kernel has no batched updates (before Linux 5.6).
        """
        import numpy as np

        if (keys.dtype, values.dtype) != self.types or len(keys) != len(values):
            raise ValueError(
                f"these are no rows of the map {self.name}: {keys.dtype}, {values.dtype}"
            )
        keys, values = np.ascontiguousarray(keys), np.ascontiguousarray(values)
        try:
            return syscalls.update_batch(self.fd, keys.ctypes.data, values.ctypes.data, len(keys))
        except OSError as error:
            raise KernelUnsupported(
                f"The map {self.name} can't be written: {error.strerror}. Linux 5.6 is needed."
            ) from error

    def delete(self, keys: npt.NDArray[Any]) -> None:
        """Delete rows of a hash map; keys that it does not have are passed over."""
        for index in range(len(keys)):
            try:
                syscalls.delete_element(self.fd, keys[index : index + 1].ctypes.data)
            except OSError:
                continue

    def reader(self) -> RingReader:
        """A reader of a ring buffer, which closes with the map. Raises KernelUnsupported."""
        if self._reader is None:
            self._reader = RingReader(self.fd, self.max_entries)
        return self._reader

    def elements(self) -> npt.NDArray[Any]:
        """The elements of an array that is mapped, as the kernel writes them; read-only.

        The array must be gone when the map is closed.
        """
        import numpy as np

        _, kind = self.types
        if self._mapped is None:
            size_bytes = self.max_entries * kind.itemsize
            self._mapped = mmap.mmap(self.fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        return np.frombuffer(self._mapped, kind, self.max_entries)

    def close(self) -> None:
        """Close it. May be called twice."""
        if self._mapped:
            self._mapped.close()
            self._mapped = None
        if self._reader:
            self._reader.close()
            self._reader = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _look_up(self, index: int, value: Any) -> None:  # noqa: ANN401 - of ctypes
        key = ctypes.c_uint32(index)
        try:
            syscalls.lookup_element(self.fd, ctypes.addressof(key), ctypes.addressof(value))
        except OSError as error:
            raise self._element_error(index, error) from error

    def _element_error(self, index: int, error: OSError) -> OSError:
        return OSError(error.errno, f"map {self.name}, element {index}: {error.strerror}")


@cache
def possible_cpus() -> int:
    """How many processors there may ever be: the number of values of an element per processor."""
    last = _POSSIBLE.read_text().strip().replace(",", "-").rpartition("-")[2]
    return int(last) + 1


def _c_type(described: Any) -> Any:  # noqa: ANN401 - from BCC's JSON to a class of ctypes
    """A C type, from how BCC describes it (MapShape): a number or a struct, which has no gaps."""
    if isinstance(described, str):
        return _NUMBERS[described]
    name, members, *_ = described
    fields = []
    for member, kind, *rest in members:
        c_type = _c_type(kind)
        for count in rest[0] if rest else ():
            c_type *= count
        fields.append((member, c_type))
    return type(name, (ctypes.Structure,), {"_pack_": 1, "_fields_": fields})


def _fill(struct: ctypes.Structure, fields: Fields) -> None:
    for name, value in fields.items():
        if isinstance(value, int):
            setattr(struct, name, value)
        elif isinstance(value, Mapping):
            _fill(getattr(struct, name), value)
        else:
            getattr(struct, name)[: len(value)] = value
