"""Loads the profiler of all time of goroutines, which reads memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.profilers.goroutines.wall_recording import WallRecording
from ebpfprof.profilers.memory_reading import MemoryProfiler
from ebpfprof.profilers.recording import Rights

if TYPE_CHECKING:
    from ebpfprof.profilers.options import Options


def open_profiler(_targets: int, _options: Options) -> MemoryProfiler[WallRecording]:
    """A profiler for any number of processes."""
    return MemoryProfiler(WallRecording)


def rights(_options: Options) -> Rights:
    """Reading memory needs no CAP_SYS_ADMIN."""
    return Rights()
