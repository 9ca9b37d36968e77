"""What Go's runtime counts in a process, at a moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebpfprof.profile.memory import MemoryStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeMoment:
    """Counters of the runtime since the process began; None for what could not be read."""

    memory: MemoryStatistics | None = None
