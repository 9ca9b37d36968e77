"""Reads a BPF ring buffer by its memory."""

from __future__ import annotations

import mmap
from typing import Final

from ebpfprof.errors import KernelUnsupported

# include/uapi/linux/bpf.h
_BUSY: Final = 1 << 31
_DISCARDED: Final = 1 << 30
_RECORD_HEADER_BYTES: Final = 8


class RingReader:
    """Reads the records of one ring buffer, in the order in which they were written.

    kernel/bpf/ringbuf.c: a page with the reader's position, one with the writer's, and the data
    twice in a row, so that no record is cut in two.
    """

    def __init__(self, map_fd: int, size_bytes: int) -> None:
        """Map it into memory. Raises KernelUnsupported."""
        page = mmap.PAGESIZE
        self._mask = size_bytes - 1
        try:
            self._own = mmap.mmap(map_fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            self._data = mmap.mmap(
                map_fd, page + 2 * size_bytes, mmap.MAP_SHARED, mmap.PROT_READ, offset=page
            )
        except OSError as error:
            raise KernelUnsupported(
                f"A ring buffer can't be read: {error.strerror}. Linux 5.8 is needed."
            ) from error
        # Whole words, each read or written at once: the kernel uses them meanwhile. They are views,
        # which close() can release even if somebody else still knows them.
        self._read_to = memoryview(self._own).cast("Q")
        self._written_to = memoryview(self._data).cast("Q")
        self._lengths = memoryview(self._data)[page:].cast("I")

    def consume(self, max_records: int = 4096) -> list[bytes]:
        """All records that are there, but at most `max_records`; never waits."""
        records: list[bytes] = []
        at, end = self._read_to[0], self._written_to[0]
        while at < end and len(records) < max_records:
            begin = at & self._mask
            header = self._lengths[begin // 4]
            if header & _BUSY:
                break  # the kernel is writing it
            length = header & ~_DISCARDED
            if not header & _DISCARDED:
                data = mmap.PAGESIZE + begin + _RECORD_HEADER_BYTES
                records.append(self._data[data : data + length])
            at += (length + _RECORD_HEADER_BYTES + 7) & ~7
            self._read_to[0] = at
        return records

    def close(self) -> None:
        """Unmap it; nothing can be read afterwards."""
        self._read_to.release()
        self._written_to.release()
        self._lengths.release()
        self._own.close()
        self._data.close()
