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
                    "size_bytes": size_class.size,
                    "objects": size_class.objects,
                    "used_bytes": size_class.used,
                    "mallocs": size_class.mallocs,
                    "frees": size_class.frees,
                    "spans": size_class.spans,
                    "held_bytes": size_class.held,
                    "pointerless_bytes": size_class.pointerless,
                }
                for size_class in memory.statistics.classes
            ],
            "large": [
                {"size_bytes": object_.size, "type": well_formed(object_.type)}
                for object_ in memory.large
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


def _statistics(statistics: MemoryStatistics) -> dict[str, Any]:
    rows = {
        name if name in _NOT_BYTES else f"{name}_bytes": value
        for name, value in asdict(statistics).items()
        if name not in _OF_PARTS
    }
    return {"allocated_bytes": statistics.allocated, "objects": statistics.objects, **rows}


def _collector(collector: Collector) -> dict[str, Any]:
    return {
        "cycles": collector.cycles,
        "forced": collector.forced,
        "paused_ns": collector.paused_ns,
        "last_pause_ns": collector.last_pause_ns,
        "last_unix_ns": collector.last_unix_ns,
        "gogc_percent": collector.percent,
        "limit_bytes": collector.limit,
        "goal_bytes": collector.goal,
        "live_bytes": collector.live,
        "marked_bytes": collector.marked,
        "cpu_fraction": collector.cpu_fraction,
    }


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document) + "\n"
