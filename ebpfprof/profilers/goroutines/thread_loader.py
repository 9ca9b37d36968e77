"""Loads the profiler of threads, which reads memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.profilers.goroutines.thread_recording import ThreadRecording
from ebpfprof.profilers.memory_reading import MemoryProfiler
from ebpfprof.profilers.recording import Rights

if TYPE_CHECKING:
    from ebpfprof.profilers.options import Options


def open_profiler(_targets: int, _options: Options) -> MemoryProfiler[ThreadRecording]:
    """A profiler for any number of processes."""
    return MemoryProfiler(ThreadRecording)


def rights(_options: Options) -> Rights:
    """Reading memory needs no CAP_SYS_ADMIN."""
    return Rights()
