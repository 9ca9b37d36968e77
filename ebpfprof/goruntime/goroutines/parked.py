"""The goroutines that are parked in a target, scanned repeatedly: only changes are read again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ebpfprof.goruntime.goroutines.reader import GoroutineReader, ParkedGoroutine, Unsteady
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.memory import Memory, UnreadableMemory
from ebpfprof.system.closing import Closing
from symbolizer import SymbolizerError
from symbolizer.codeanalysis.globals import scheduling_latencies

_SCAN: Final = 0x1000  # runtime._Gscan
_WAITING: Final = 4
_LEAKED: Final = 10  # from Go 1.26 on
# Frequent wait reasons of operations without a hook (runtime/netpoll.go, runtime/time.go).
_NEVER_HOOKED: Final = ("IOWait", "Sleep")


class Wait(NamedTuple):
    """Identifies one wait of one goroutine: an equal Wait in a later scan is the same wait.

    `sequence` is g.trackingSeq, which counts how often the goroutine stopped running, modulo 256
    (runtime/proc.go, casgstatus, Go 1.17 on).
    """

    address: int
    goid: int
    sequence: int


class ParkedScanner(Closing):
    """Scans the goroutines of one target. A context manager that closes the target's memory."""

    def __init__(self, go: GoTarget, *, has_labels: bool) -> None:
        """With `has_labels`, read the labels of goroutines, too.

        Raises TargetGone, PermissionDenied or GoTableError.
        """
        self._memory = Memory(go.target)
        self._reader = GoroutineReader(go, self._memory, has_labels=has_labels)
        layout = go.binary.layout
        fields = ("atomicstatus", "goid", "trackingSeq", "waitreason")
        offsets = [layout.offset("g", name) for name in fields]
        self._first = min(offsets)
        self._kind = np.dtype(
            {
                "names": ["status", "goid", "sequence", "reason"],
                "formats": ["<u4", "<u8", "u1", "u1"],
                "offsets": [offset - self._first for offset in offsets],
                "itemsize": max(offsets) + 8 - self._first,
            }
        )
        reasons = layout.wait_reasons
        self._is_never_hooked = np.zeros(1 << 8, np.bool_)
        self._is_never_hooked[[reasons[name] for name in _NEVER_HOOKED if name in reasons]] = True
        self._latencies = _scheduling_latencies(go)
        self._latencies_bytes = layout.size("timeHistogram")
        self._looked: dict[Wait, ParkedGoroutine | None] = {}
        self._perhaps_hooked: list[Wait] = []
        self.waiting: frozenset[Wait] = frozenset()
        """The waits of the last scan, whatever their wait reasons."""

    def scan(self) -> frozenset[Wait]:
        """The waits of all goroutines now, whatever their wait reasons.

        Raises TargetGone or UnreadableMemory.
        """
        addresses, records, is_parked = self.heads()
        is_elsewhere = self._is_never_hooked[records["reason"]]
        elsewhere = map(Wait, *_columns(addresses, records, is_parked & is_elsewhere))
        others = map(Wait, *_columns(addresses, records, is_parked & ~is_elsewhere))
        self._perhaps_hooked = list(others)
        self.waiting = frozenset((*elsewhere, *self._perhaps_hooked))
        return self.waiting

    def heads(
        self,
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """The addresses of all runtime.g, the fields that a scan needs, and which are parked.

        Raises TargetGone or UnreadableMemory.
        """
        found, _ = self._reader.all_goroutines()
        addresses = np.array(found, np.uint64)
        records = self._memory.read_records(addresses + np.uint64(self._first), self._kind)
        statuses = records["status"] & ~np.uint32(_SCAN)
        return addresses, records, (statuses == _WAITING) | (statuses == _LEAKED)

    def parked(self) -> dict[Wait, ParkedGoroutine]:
        """The goroutines that are parked now in an operation that Go's block profiler hooks.

        It reads one after the other, and leaves out those that change meanwhile. Raises TargetGone
        or UnreadableMemory.
        """
        known, self._looked = self._looked, {}
        self.scan()
        for wait in self._perhaps_hooked:
            if wait in known:
                self._looked[wait] = known[wait]
                continue
            with suppress(Unsteady, UnreadableMemory):
                found = self._reader.look(wait.address)[0]
                if found:  # perhaps in its next wait already
                    wait = Wait(found.address, found.goid, found.sequence)
                self._looked[wait] = found
        return {wait: found for wait, found in self._looked.items() if found}

    def times_run(self) -> int:
        """How often goroutines left the run queue since the program began, divided by eight.

        Go's scheduler counts one time in eight (runtime.sched.timeToRun), with or without a
        recording. 0 if we do not find its counters. Raises TargetGone or UnreadableMemory.
        """
        if self._latencies is None:
            return 0
        data = self._memory.read(self._latencies, self._latencies_bytes)
        return int(np.frombuffer(data, np.uint64).sum())

    def waits_for_semaphore(self, wait: Wait) -> bool:
        """Whether this wait was for a semaphore, at the last call of parked()."""
        found = self._looked.get(wait)
        return found is not None and found.sema != 0

    def close(self) -> None:
        """Close the target's memory."""
        self._memory.close()


def _scheduling_latencies(go: GoTarget) -> int | None:
    try:
        address = scheduling_latencies(go.binary)
    except SymbolizerError:
        return None
    return None if address is None else address + go.load_bias


def _columns(
    addresses: npt.NDArray[np.uint64], records: npt.NDArray[Any], chosen: npt.NDArray[np.bool_]
) -> Iterator[list[int]]:
    yield addresses[chosen].tolist()
    yield records["goid"][chosen].tolist()
    yield records["sequence"][chosen].tolist()
