"""A target's memory that is made up."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ebpfprof.process.memory import UnreadableMemory


class FakeMemory:
    """Memory in parts: addresses, and what is there."""

    pid = 1

    def __init__(self, parts: Sequence[tuple[int, bytes]]) -> None:
        self._parts = parts

    def read(self, address: int, size: int) -> bytes:
        for start, data in self._parts:
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise UnreadableMemory(f"nothing at {address:#x}")

    def read_records(
        self, addresses: npt.NDArray[np.uint64], kind: np.dtype[Any]
    ) -> npt.NDArray[Any]:
        found = np.zeros(len(addresses), kind)
        for index, address in enumerate(addresses.tolist()):
            with suppress(UnreadableMemory):
                found[index] = np.frombuffer(self.read(address, kind.itemsize), kind)[0]
        return found

    def gather(self, here: int, parts: int, there: int, pieces: int) -> int:
        """As process_vm_readv(2): it ends at the first piece that can't be read."""
        local = np.ctypeslib.as_array((ctypes.c_uint64 * (2 * parts)).from_address(here))
        remote = np.ctypeslib.as_array((ctypes.c_uint64 * (2 * pieces)).from_address(there))
        found = b""
        for address, size in remote.reshape(-1, 2).tolist():
            try:
                found += self.read(address, size) if size else b""
            except UnreadableMemory:
                break
        at = 0
        for address, size in local.reshape(-1, 2).tolist():
            part = found[at : at + size]
            ctypes.memmove(address, part, len(part))
            at += size
        return len(found)

    def bring(self, address: int, size: int) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> FakeMemory:
        return self

    def __exit__(self, *_: object) -> None:
        pass
