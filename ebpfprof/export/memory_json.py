"""What a program's memory consists of, as JSON: docs/memory.schema.json describes it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import well_formed

if TYPE_CHECKING:
    from ebpfprof.errors import EbpfprofError
    from ebpfprof.profile.memory import Collector, MemoryParts, MemoryStatistics

FORMAT: Final = "ebpfprof-memory-1"
_NOT_BYTES: Final = frozenset({"mallocs", "frees", "tiny_mallocs", "is_settled"})
_OF_PARTS: Final = frozenset({"collector", "classes"})


def encode(memory: MemoryParts, pid: int, name: str, go_version: str, now_s: float) -> str:
    """One line. `now_s` is Unix time."""
    return _line(
        {
            "format": FORMAT,
            "pid": pid,
            "name": well_formed(name),
            "go_version": well_formed(go_version),
            "time_s": now_s,
            "statistics": _statistics(memory.statistics),
            "collector": _collector(memory.statistics.collector),
            "sizes": [
                {
                    "size_bytes": each.size,
                    "objects": each.objects,
                    "used_bytes": each.used,
                    "mallocs": each.mallocs,
                    "frees": each.frees,
                    "spans": each.spans,
                    "held_bytes": each.held,
                    "pointerless_bytes": each.pointerless,
                }
                for each in memory.statistics.classes
            ],
            "large": [
                {"size_bytes": each.size, "type": well_formed(each.type)} for each in memory.large
            ],
            "types": None
            if memory.types is None
            else [
                {"type": well_formed(e.name), "objects": e.objects, "used_bytes": e.used}
                for e in memory.types
            ],
            "typed_bytes": memory.typed,
            "typed_share_read": memory.typed_share,
        }
    )


def failed(pid: int, error: EbpfprofError) -> str:
    """One line for a process that could not be read."""
    return _line({"pid": pid, "error": str(error), "exit_code": int(error.exit_code)})


def _statistics(found: MemoryStatistics) -> dict[str, Any]:
    rows = {
        name if name in _NOT_BYTES else f"{name}_bytes": value
        for name, value in asdict(found).items()
        if name not in _OF_PARTS
    }
    return {"allocated_bytes": found.allocated, "objects": found.objects, **rows}


def _collector(found: Collector) -> dict[str, Any]:
    return {
        "cycles": found.cycles,
        "forced": found.forced,
        "paused_ns": found.paused_ns,
        "last_pause_ns": found.last_pause_ns,
        "last_unix_ns": found.last_unix_ns,
        "gogc_percent": found.percent,
        "limit_bytes": found.limit,
        "goal_bytes": found.goal,
        "live_bytes": found.live,
        "marked_bytes": found.marked,
        "cpu_fraction": found.cpu_fraction,
    }


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document) + "\n"
