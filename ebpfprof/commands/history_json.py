"""What `history --json` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ebpfprof.commands.times import iso
from ebpfprof.console.text import well_formed
from ebpfprof.profilers.registry import find_kind
from ebpfprof.ring.coverage import Gap, agent_gaps, coverage, coverage_of_one
from ebpfprof.ring.typed import to_plain

if TYPE_CHECKING:
    from ebpfprof.ring.index import IndexedFile, IndexedProcess
    from ebpfprof.ring.reader import RecordedTime


def as_json(
    time: RecordedTime, processes: Sequence[IndexedProcess], names: Sequence[str], folder: str
) -> str:
    """The processes of a time with their totals and files, and what was not watched."""
    found = coverage(time, processes)
    shown = {
        "format": 1,
        "from": iso(time.begun_ns),
        "to": iso(time.until_ns),
        "folder": folder,
        "watched_seconds": found.watched_ns / 1e9,
        "not_watched": [_gap(each) for each in (found.gaps if processes else agent_gaps(time))],
        "not_running": [
            {"from": iso(begun_ns), "to": iso(until_ns)} for begun_ns, until_ns in found.absent
        ],
        "processes": [_process(time, each, names) for each in processes],
    }
    return json.dumps(_well_formed(shown), indent=2, ensure_ascii=False)


def _process(time: RecordedTime, found: IndexedProcess, names: Sequence[str]) -> dict[str, Any]:
    process = found.process
    files = [each for each in time.files if each.process == found.number]
    watched = coverage_of_one(time, found)
    return {
        **to_plain(process.identity),
        "pid": process.pid,
        "command": process.command,
        "go_version": process.go_version,
        "began": iso(process.began_ns) if process.began_ns else None,
        "ended": None if found.ended_ns is None else iso(found.ended_ns),
        "watched_seconds": watched.watched_ns / 1e9,
        "not_watched": [_gap(each) for each in watched.gaps],
        "profiles": {
            kind: _profile(kind, [each for each in files if each.kind == kind])
            for kind in names
            if any(each.kind == kind for each in files)
        },
    }


def _profile(kind: str, files: Sequence[IndexedFile]) -> dict[str, Any]:
    found = find_kind(kind)
    types = found.sample_types if found else ()
    counted = files[-1:] if found and found.is_moment else files
    return {
        "is_moment": bool(found and found.is_moment),
        "is_estimate": any(each.is_estimate for each in counted),
        "totals": [
            {
                "type": each.type,
                "unit": each.unit,
                "value": sum(file.totals[at] for file in counted if len(file.totals) > at),
            }
            for at, each in enumerate(types)
        ],
        "files": [each.path for each in files],
    }


def _gap(gap: Gap) -> dict[str, str]:
    return {"from": iso(gap.begun_ns), "to": iso(gap.until_ns), "reason": gap.reason}


def _well_formed(value: Any) -> Any:  # noqa: ANN401 - JSON has any type
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed(key): _well_formed(each) for key, each in value.items()}
    return [_well_formed(each) for each in value] if isinstance(value, list) else value
