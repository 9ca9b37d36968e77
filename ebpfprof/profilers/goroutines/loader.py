"""Loads the profiler of goroutines, which reads memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ebpfprof.profilers.goroutines.goroutine_recording import GoroutineRecording
from ebpfprof.profilers.memory_reading import MemoryProfiler
from ebpfprof.profilers.recording import Rights

if TYPE_CHECKING:
    from ebpfprof.profilers.options import Options


def open_profiler(_targets: int, options: Options) -> MemoryProfiler[GoroutineRecording]:
    """A profiler for any number of processes."""
    return MemoryProfiler(partial(GoroutineRecording, has_labels=options.labels != ()))


def rights(_options: Options) -> Rights:
    """Reading memory needs no CAP_SYS_ADMIN."""
    return Rights()
