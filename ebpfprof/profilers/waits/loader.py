"""Loads the profiler of waits: one BPF program with probes in any number of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.profilers.recording import Rights

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.waits.wait_recording import WaitsProfiler


def open_profiler(targets: int, options: Options) -> WaitsProfiler:
    """Start to compile, for up to `targets` processes. Raises what WaitsCollector raises."""
    from ebpfprof.profilers.waits.wait_recording import WaitsProfiler

    return WaitsProfiler(targets, options)


def rights(_options: Options) -> Rights:
    """Kernels without uprobe links require CAP_SYS_ADMIN for attaching probes."""
    from ebpfprof.kernel import uprobe_links

    return Rights(to_attach=not uprobe_links.is_offered())
