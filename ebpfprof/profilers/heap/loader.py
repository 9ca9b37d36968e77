"""Loads the profiler of the heap and allocs profiles: of memory, and of probes where needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.kernel import uprobe_links
from ebpfprof.profilers.recording import Rights

if TYPE_CHECKING:
    from ebpfprof.profilers.heap.heap_recording import HeapProfiler
    from ebpfprof.profilers.options import Options


def open_profiler(targets: int, options: Options) -> HeapProfiler:
    """A profiler for up to `targets` processes."""
    from ebpfprof.profilers.heap.heap_recording import HeapProfiler

    return HeapProfiler(targets, options)


def rights(_options: Options) -> Rights:
    """Where the program keeps no profile: kernels without uprobe links require CAP_SYS_ADMIN."""
    return Rights(to_attach=not uprobe_links.is_offered())
