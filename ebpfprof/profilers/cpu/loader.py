"""Loads the profiler of CPU time: samplers on all processors, for any number of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.privileges.capabilities import set_aside
from ebpfprof.profilers.recording import Rights

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.profilers.cpu.cpu_recording import CpuProfiler
    from ebpfprof.profilers.options import Options


def open_profiler(targets: int, options: Options) -> CpuProfiler:
    """Start to compile, for up to `targets` processes. Raises what CpuProgram raises."""
    from ebpfprof.profilers.cpu.cpu_program import CpuConfig
    from ebpfprof.profilers.cpu.cpu_recording import CpuProfiler

    return CpuProfiler(targets, CpuConfig.of(options))


def rights(_options: Options) -> Rights:
    """The kernel may be set to require CAP_SYS_ADMIN for perf events (perf_event_paranoid)."""
    from ebpfprof.kernel import perf_events

    # A processor that comes online during the recording needs an event, too.
    with set_aside("CAP_SYS_ADMIN"):
        is_needed = not perf_events.may_open_events()
    return Rights(to_attach=is_needed, to_record=is_needed)
