"""Reads what Go's runtime counts in a process, from its memory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ebpfprof.errors import TargetGone
from ebpfprof.findings.runtime import RuntimeMoment
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.memory_globals import memory_globals
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget


class RuntimeReader:
    """Reads the runtime's counters of one process, any number of times."""

    def __init__(self, go: GoTarget) -> None:
        """Find the counters; those of which the places are not found are None later."""
        self._memory: MemoryStatisticsReader | None = None
        with suppress(SymbolizerError):
            self._memory = MemoryStatisticsReader(
                go.target.memory, go.binary, memory_globals(go.binary), go.load_bias
            )

    def read(self) -> RuntimeMoment:
        """The counters now."""
        memory = None
        if self._memory is not None:
            with suppress(TargetGone, UnreadableMemory):
                memory = self._memory.read()
        return RuntimeMoment(memory=memory)
