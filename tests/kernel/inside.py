"""What tests look at inside of a session."""

from __future__ import annotations

from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.wait_recording import WaitsProfiler
from ebpfprof.recording.live import LiveSession


def profiler_of_waits(live: LiveSession) -> WaitsProfiler:
    (found,) = (kind for kind in live.profilers._kinds if isinstance(kind, WaitsProfiler))
    return found


def collector_of_waits(live: LiveSession) -> WaitsCollector:
    return profiler_of_waits(live).collector
