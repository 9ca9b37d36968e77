"""The CPU time of garbage collections by kind, as the runtime counts it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.memory import CollectorCpu
from symbolizer.codeanalysis.globals import cpu_statistics_address
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget

_FIELDS: Final = {
    "assist_ns": "GCAssistTime",
    "dedicated_ns": "GCDedicatedTime",
    "idle_workers_ns": "GCIdleTime",
    "paused_ns": "GCPauseTime",
    "scavenger_ns": "ScavengeTotalTime",
    "idle_ns": "IdleTime",
    "user_ns": "UserTime",
    "total_ns": "TotalTime",
}
_WORD_BYTES: Final = 8


class CollectorCpuReader:
    """Reads runtime.work.cpuStats of one target (runtime/mstats.go, Go 1.21 to 1.27)."""

    def __init__(self, go: GoTarget) -> None:
        """Find the counters."""
        self._memory, self._layout = go.target.memory, go.binary.layout
        self._address: int | None = None
        with suppress(SymbolizerError):  # then they are None
            address = cpu_statistics_address(go.binary)
            self._address = None if address is None else address + go.load_bias

    def read(self) -> CollectorCpu | None:
        """The times now; None if they were not found. Raises TargetGone or UnreadableMemory."""
        if self._address is None:
            return None
        data = self._memory.read(self._address, self._layout.size("cpuStats"))
        return CollectorCpu(
            **{
                name: int.from_bytes(data[at : at + _WORD_BYTES], "little", signed=True)
                for name, field in _FIELDS.items()
                for at in [self._layout.offset("cpuStats", field)]
            }
        )
