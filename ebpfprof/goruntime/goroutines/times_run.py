"""How often goroutines began to run: Go's scheduler counts one time in eight itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from ebpfprof.errors import TargetGone
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.globals import scheduling_latencies
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from symbolizer import GoBinary


class TimesRun:
    """Reads runtime.sched.timeToRun of one target (Go 1.19 to 1.27, runtime/proc.go, casgstatus).

    It counts each tracked time that a goroutine began to run after it was runnable, whatever for;
    up to Go 1.25 also returns from system calls, without a time.
    """

    def __init__(
        self, go: GoTarget, find: Callable[[GoBinary], int | None] = scheduling_latencies
    ) -> None:
        """`find` returns the address of the counters as linked."""
        self._memory = go.target.memory
        self._bytes = go.binary.layout.size("timeHistogram")
        self._address: int | None = None
        with suppress(SymbolizerError):  # then is_known is False
            address = find(go.binary)
            self._address = None if address is None else address + go.load_bias

    @property
    def is_known(self) -> bool:
        """Whether the counters were found."""
        return self._address is not None

    def count(self) -> int | None:
        """The number since the program began, divided by eight; None if it can't be read."""
        if self._address is None:
            return None
        try:
            data = self._memory.read(self._address, self._bytes)
        except (TargetGone, UnreadableMemory):
            return None
        return int(np.frombuffer(data, np.uint64).sum())
