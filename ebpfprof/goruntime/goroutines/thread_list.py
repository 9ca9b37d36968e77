"""The runtime's list of threads: runtime.allm, linked by m.alllink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.records import record
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.thread_globals import allm_address

if TYPE_CHECKING:
    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary

_ATTEMPTS: Final = 5
_MAX_THREADS: Final = 1 << 16
_ADDRESS_END: Final = 1 << 47
_WORD_BYTES: Final = 8
_STACK: Final = 32  # m.createstack
_FIELDS: Final = (
    *(("thread", "procid", "<u8"), ("goroutine", "curg", "<u8"), ("processor", "p", "<u8")),
    *(("in_c", "incgo", "u1"), ("locked", "lockedg", "<u8"), ("following", "alllink", "<u8")),
    *(("start", "mstartfn", "<u8"), ("creation", "createstack", f"({_STACK},)<u8")),
)


class RuntimeThread(NamedTuple):
    """A runtime.m: words of it, as numbers.

    `thread` is its number in the target's own pid namespace. `goroutine` is m.curg, `processor`
    m.p, `locked` m.lockedg. `start` is the entry of the function that it runs in place of
    goroutines, 0 if there is none. `creation` is m.createstack, up to the first 0.
    """

    address: int
    thread: int
    goroutine: int
    processor: int
    in_c: bool
    locked: int
    start: int
    creation: tuple[int, ...]


class ThreadList:
    """Reads the list of one target. Raises GoTableError if its code does not show where it is."""

    def __init__(self, binary: GoBinary, load_bias: int, pid: int) -> None:
        self._head = allm_address(binary) + load_bias
        self._pid = pid
        self._record = record(binary.layout, "m", _FIELDS)

    def read(self, memory: Memory) -> list[RuntimeThread]:
        """All of them, the newest first. Raises TargetGone or UnreadableMemory."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._walk(memory)
            except UnreadableMemory:
                if attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError

    def _walk(self, memory: Memory) -> list[RuntimeThread]:
        threads: list[RuntimeThread] = []
        seen = set[int]()
        at = self._word(memory, self._head)
        while at:
            if at in seen or at % _WORD_BYTES or at >= _ADDRESS_END or len(seen) >= _MAX_THREADS:
                raise UnreadableMemory(
                    f"The list of threads of process {self._pid} makes no sense: it can't be read."
                )
            seen.add(at)
            data = memory.read(at, self._record.itemsize)
            (row,) = np.frombuffer(data, self._record)
            threads.append(self._machine(memory, at, row))
            at = int(row["following"])
        return threads

    def _machine(self, memory: Memory, at: int, row: Any) -> RuntimeThread:  # noqa: ANN401 - of numpy
        creation = row["creation"].tolist()
        end = creation.index(0) if 0 in creation else len(creation)
        closure = int(row["start"])
        return RuntimeThread(
            address=at,
            thread=int(row["thread"]),
            goroutine=int(row["goroutine"]),
            processor=int(row["processor"]),
            in_c=bool(row["in_c"]),
            locked=int(row["locked"]),
            start=self._word(memory, closure) if closure else 0,
            creation=tuple(creation[:end]),
        )

    @staticmethod
    def _word(memory: Memory, address: int) -> int:
        return int.from_bytes(memory.read(address, _WORD_BYTES), "little")
