"""The runtime.MemStats that net/http/pprof writes behind a memory profile with ?debug=1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ebpfprof.profile.memory import MemoryStatistics

_NO_GOAL: Final = (1 << 63) - 1
"""Where no collection is due, Go reports a goal a little below the largest memory limit."""


def text(
    statistics: MemoryStatistics,
    pauses: tuple[Sequence[int], Sequence[int]],
    peak_rss_bytes: int,
) -> str:
    """The lines of runtime/pprof/pprof.go, writeHeapInternal, the same in Go 1.19 to 1.27.

    Go's MaxRSS has what the process needed before it ran this program, too; `peak_rss_bytes` not.

    `pauses` are the lengths (ns) and ends (Unix ns) of the last 256, by number of the collection.
    """
    collector = statistics.collector
    stacks, spans, caches = (
        f"{in_use} / {mapped}"
        for in_use, mapped in (
            (statistics.stacks_in_use, statistics.stacks_mapped),
            (statistics.spans_in_use, statistics.spans_mapped),
            (statistics.caches_in_use, statistics.caches_mapped),
        )
    )
    lengths, ends = (" ".join(map(str, pause)) for pause in pauses)
    rows = (
        ("Alloc", statistics.allocated),
        ("TotalAlloc", statistics.total_allocated),
        ("Sys", statistics.mapped),
        ("Lookups", 0),  # Go has it no more, but for its name
        ("Mallocs", statistics.mallocs),
        ("Frees", statistics.frees),
        ("HeapAlloc", statistics.allocated),
        ("HeapSys", statistics.heap_mapped),
        ("HeapIdle", statistics.idle),
        ("HeapInuse", statistics.heap_in_use),
        ("HeapReleased", statistics.released),
        ("HeapObjects", statistics.objects),
        ("Stack", stacks),
        ("MSpan", spans),
        ("MCache", caches),
        ("BuckHashSys", statistics.profile_buckets),
        ("GCSys", statistics.collector_mapped),
        ("OtherSys", statistics.other_mapped),
        ("NextGC", _NO_GOAL if collector.goal is None else collector.goal),
        ("LastGC", collector.last_unix_ns),
        ("PauseNs", f"[{lengths}]"),
        ("PauseEnd", f"[{ends}]"),
        ("NumGC", collector.cycles),
        ("NumForcedGC", collector.forced),
        ("GCCPUFraction", _shortest(collector.cpu_fraction)),
        ("DebugGC", "false"),
        ("MaxRSS", peak_rss_bytes),
    )
    lines = "".join(f"# {name} = {value}\n" for name, value in rows)
    return f"\n# runtime.MemStats\n{lines}"


def _shortest(fraction: float) -> str:
    """As Go writes a number from 0 to 1 (%v): whole ones without a point."""
    return repr(fraction).removesuffix(".0")
