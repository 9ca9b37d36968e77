"""BPF maps by system call: created in the size that is wanted, and read many rows at a time."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.errors import KernelUnsupported, PermissionDenied
from ebpfprof.kernel import features, perf_events
from ebpfprof.kernel.compiler import MapShape
from ebpfprof.privileges.checks import way_out

if TYPE_CHECKING:  # numpy takes long to import: only when maps are read
    import numpy as np
    import numpy.typing as npt

Fields = Mapping[str, "int | Sequence[int] | Fields"]

_BATCH_ROWS = 4096
_POSSIBLE = Path("/sys/devices/system/cpu/possible")

# include/uapi/linux/bpf.h
_LOOKUP, _UPDATE, _DELETE = 1, 2, 3
_LOOKUP_BATCH, _UPDATE_BATCH = 24, 26
_NO_PREALLOC = 1 << 0
_BUSY, _DISCARDED = 1 << 31, 1 << 30
_RECORD_HEADER_BYTES = 8

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


class _Element(ctypes.Structure):
    """The beginning of union bpf_attr for commands on one element."""

    _fields_ = [
        ("map_fd", ctypes.c_uint32),
        ("key", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


class BpfMap:
    """One map; closing it frees it, unless a program that is loaded uses it."""

    def __init__(
        self, shape: MapShape, max_entries: int | None = None, *, grows: bool = False
    ) -> None:
        """Create it, of the size that its C has if none is given.

        A hash map that `grows` takes memory as rows come, if the kernel can do that. Raises
        KernelUnsupported or PermissionDenied.
        """
        self.name, self._shape = shape.name, shape
        self.max_entries = max_entries or shape.max_entries
        self.fd = perf_events.create_map(
            shape.kind,
            shape.key_bytes,
            shape.value_bytes,
            self.max_entries,
            flags=_NO_PREALLOC if grows and features.have_growing_maps() else 0,
            name=shape.name,
        )
        if self.fd < 0:
            raise _refused(self.name, self.max_entries)

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
        """Write an element of an array of structs; fields that are left out are 0."""
        value = self._value()
        _fill(value, fields)
        self._element(_UPDATE, ctypes.c_uint32(index), ctypes.addressof(value))

    def numbers(self) -> list[int]:
        """All elements of an array of integers."""
        value = self._value()
        found = []
        for index in range(self.max_entries):
            self._element(_LOOKUP, ctypes.c_uint32(index), ctypes.addressof(value))
            found.append(int(value.value))
        return found

    def sum_at(self, index: int) -> dict[str, int]:
        """An element of an array per processor of structs of integers, summed up."""
        values = (self._value * possible_cpus())()
        self._element(_LOOKUP, ctypes.c_uint32(index), ctypes.addressof(values))
        names = [name for name, *_ in self._value._fields_]
        return {name: sum(getattr(part, name) for part in values) for name in names}

    def batches(self) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """All keys and values of a hash map, some thousands at a time.

        Rows that come or go meanwhile may be missing; every other row is there once.
        Raises KernelUnsupported where the kernel has no batched lookups (before Linux 5.6).
        """
        import numpy as np

        key_type, value_type = self.types
        position = ctypes.create_string_buffer(max(8, key_type.itemsize))
        start: int | None = None
        rows = min(_BATCH_ROWS, self.max_entries)
        while True:
            keys, values = np.zeros(rows, key_type), np.zeros(rows, value_type)
            attr = features.Batch(
                in_batch=start,
                out_batch=ctypes.addressof(position),
                keys=keys.ctypes.data,
                values=values.ctypes.data,
                count=rows,
                map_fd=self.fd,
            )
            code = ctypes.get_errno() if perf_events.bpf(_LOOKUP_BATCH, attr) < 0 else 0
            if code == errno.ENOSPC and rows < self.max_entries:
                rows = min(rows * 2, self.max_entries)  # one hash bucket holds more rows
                continue
            if code not in (0, errno.ENOENT):
                raise KernelUnsupported(
                    f"The map {self.name} can't be read: {os.strerror(code)}. Linux 5.6 is needed."
                )
            yield keys[: attr.count], values[: attr.count]
            if code == errno.ENOENT:
                return
            start = ctypes.addressof(position)

    def update(self, keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> int:
        """Add or replace rows of a hash map; returns how many went in before it was full.

        Raises KernelUnsupported where the kernel has no batched updates (before Linux 5.6).
        """
        import numpy as np

        if (keys.dtype, values.dtype) != self.types or len(keys) != len(values):
            raise ValueError(
                f"these are no rows of the map {self.name}: {keys.dtype}, {values.dtype}"
            )
        keys, values = np.ascontiguousarray(keys), np.ascontiguousarray(values)
        attr = features.Batch(
            keys=keys.ctypes.data, values=values.ctypes.data, count=len(keys), map_fd=self.fd
        )
        code = ctypes.get_errno() if perf_events.bpf(_UPDATE_BATCH, attr) < 0 else 0
        if code not in (0, errno.E2BIG, errno.ENOSPC, errno.ENOMEM):
            raise KernelUnsupported(
                f"The map {self.name} can't be written: {os.strerror(code)}. Linux 5.6 is needed."
            )
        return int(attr.count)

    def delete(self, keys: npt.NDArray[Any]) -> None:
        """Delete rows of a hash map; those that are not there are passed over."""
        for index in range(len(keys)):
            attr = _Element(map_fd=self.fd, key=keys[index : index + 1].ctypes.data)
            perf_events.bpf(_DELETE, attr)

    def close(self) -> None:
        """Let go of it. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _element(self, command: int, key: ctypes.c_uint32, value: int) -> None:
        attr = _Element(map_fd=self.fd, key=ctypes.addressof(key), value=value)
        if perf_events.bpf(command, attr) < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"map {self.name}, element {key.value}: {os.strerror(code)}")


class RingReader:
    """Reads the records of one ring buffer, in the order in which they were written.

    kernel/bpf/ringbuf.c: a page with the reader's position, one with the writer's, and the data
    twice in a row, so that no record is cut in two.
    """

    def __init__(self, ring: BpfMap) -> None:
        """Map it into memory. Raises KernelUnsupported."""
        page = mmap.PAGESIZE
        self._mask = ring.max_entries - 1
        try:
            self._own = mmap.mmap(ring.fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            bytes_mapped = page + 2 * ring.max_entries
            self._data = mmap.mmap(
                ring.fd, bytes_mapped, mmap.MAP_SHARED, mmap.PROT_READ, offset=page
            )
        except OSError as error:
            raise KernelUnsupported(
                f"A ring buffer can't be read: {error.strerror}. Linux 5.8 is needed."
            ) from error
        self._read_to = ctypes.c_uint64.from_buffer(self._own)
        # Whole words, each read at once: the kernel writes them meanwhile.
        self._written_to = memoryview(self._data).cast("Q")
        self._lengths = memoryview(self._data)[page:].cast("I")

    def consume(self, max_records: int = 4096) -> list[bytes]:
        """All records that are there, but at most `max_records`; never waits."""
        records: list[bytes] = []
        at, end = self._read_to.value, self._written_to[0]
        while at < end and len(records) < max_records:
            begin = at & self._mask
            header = self._lengths[begin // 4]
            if header & _BUSY:
                break  # it is being written
            length = header & ~_DISCARDED
            if not header & _DISCARDED:
                data = mmap.PAGESIZE + begin + _RECORD_HEADER_BYTES
                records.append(self._data[data : data + length])
            at += (length + _RECORD_HEADER_BYTES + 7) & ~7
            self._read_to.value = at
        return records

    def close(self) -> None:
        """Give the memory back; nothing can be read any more."""
        del self._read_to
        self._written_to.release()
        self._lengths.release()
        self._own.close()
        self._data.close()


@cache
def possible_cpus() -> int:
    """How many processors there may ever be: so many values has an element per processor."""
    last = _POSSIBLE.read_text().strip().replace(",", "-").rpartition("-")[2]
    return int(last) + 1


def _c_type(described: Any) -> Any:  # noqa: ANN401 - from BCC's JSON to a class of ctypes
    """A C type, from how BCC tells it (MapShape): a number or a struct, which has no gaps."""
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


def _refused(name: str, max_entries: int) -> KernelUnsupported | PermissionDenied:
    code = ctypes.get_errno()
    what = f"The kernel refused the map {name} of {max_entries} rows: {os.strerror(code)}"
    if code in (errno.EPERM, errno.EACCES):
        # One without attach cookies may limit maps by RLIMIT_MEMLOCK, too (before 5.11).
        features.require_cookies()
        return PermissionDenied(f"{what}. {way_out()}")
    return KernelUnsupported(f"{what} (errno {code}). Is there too little memory?")
