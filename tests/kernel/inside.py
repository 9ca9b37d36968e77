"""What tests look at inside of a session."""

from __future__ import annotations

from ebpfprof.kernel.maps import BpfMap
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.length_table import LengthTable
from ebpfprof.profilers.waits.wait_recording import WaitsProfiler
from ebpfprof.recording.live import LiveSession


def profiler_of_waits(live: LiveSession) -> WaitsProfiler:
    (found,) = (kind for kind in live.profilers._kinds if isinstance(kind, WaitsProfiler))
    return found


def collector_of_waits(live: LiveSession) -> WaitsCollector:
    return profiler_of_waits(live).collector


def map_of_lengths(live: LiveSession) -> BpfMap:
    """The map with the histograms of a session that has begun."""
    return collector_of_waits(live)._program.maps["lengths"]


def table_of_lengths(live: LiveSession) -> LengthTable:
    """What reads them."""
    return collector_of_waits(live).tables._lengths
