"""The output of `history --json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ebpfprof.commands.history_text import findings_of
from ebpfprof.commands.times import iso
from ebpfprof.console.text import well_formed
from ebpfprof.profilers.registry import find_kind
from ebpfprof.ring.coverage import Gap, agent_gaps, coverage, coverage_of_one
from ebpfprof.ring.typed import to_plain

if TYPE_CHECKING:
    from ebpfprof.ring.index import IndexedFile, IndexedFinding, IndexedProcess
    from ebpfprof.ring.reader import RecordedTime


def as_json(
    time: RecordedTime, processes: Sequence[IndexedProcess], names: Sequence[str], folder: str
) -> str:
    """The processes of a time with their totals and files, and times that were not recorded."""
    watched_time = coverage(time, processes)
    shown = {
        "format": 1,
        "from": iso(time.begun_ns),
        "to": iso(time.until_ns),
        "folder": folder,
        "watched_seconds": watched_time.watched_ns / 1e9,
        "not_watched": [
            _gap(gap) for gap in (watched_time.gaps if processes else agent_gaps(time))
        ],
        "not_running": [
            {"from": iso(begun_ns), "to": iso(until_ns)}
            for begun_ns, until_ns in watched_time.absent
        ],
        "processes": [_process(time, process, names) for process in processes],
    }
    return json.dumps(_well_formed(shown), indent=2, ensure_ascii=False)


def _process(time: RecordedTime, indexed: IndexedProcess, names: Sequence[str]) -> dict[str, Any]:
    process = indexed.process
    files = [file for file in time.files if file.process == indexed.number]
    watched = coverage_of_one(time, indexed)
    return {
        **to_plain(process.identity),
        "pid": process.pid,
        "command": process.command,
        "go_version": process.go_version,
        "began": iso(process.began_ns) if process.began_ns else None,
        "ended": None if indexed.ended_ns is None else iso(indexed.ended_ns),
        "watched_seconds": watched.watched_ns / 1e9,
        "not_watched": [_gap(gap) for gap in watched.gaps],
        "findings": [_finding(one) for _, one in findings_of(time, [indexed])],
        "profiles": {
            kind: _profile(kind, of_kind)
            for kind in names
            if (of_kind := [file for file in files if file.kind == kind])
        },
    }


def _profile(kind: str, files: Sequence[IndexedFile]) -> dict[str, Any]:
    known = find_kind(kind)
    types = known.sample_types if known else ()
    counted = files[-1:] if known and known.is_moment else files
    return {
        "is_moment": bool(known and known.is_moment),
        "is_estimate": any(file.is_estimate for file in counted),
        "totals": [
            {
                "type": value_type.type,
                "unit": value_type.unit,
                "value": sum(file.totals[index] for file in counted if len(file.totals) > index),
            }
            for index, value_type in enumerate(types)
        ],
        "files": [file.path for file in files],
    }


def _finding(indexed: IndexedFinding) -> dict[str, Any]:
    finding = indexed.finding
    return {
        "from": iso(indexed.begun_ns),
        "to": iso(indexed.until_ns),
        "kind": finding.kind,
        "level": finding.level,
        "title": finding.title,
        "lines": list(finding.lines),
        "share": finding.share,
        "error": finding.error,
        "place": finding.place or None,
    }


def _gap(gap: Gap) -> dict[str, str]:
    return {"from": iso(gap.begun_ns), "to": iso(gap.until_ns), "reason": gap.reason}


def _well_formed(value: Any) -> Any:  # noqa: ANN401 - JSON has any type
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed(key): _well_formed(inner) for key, inner in value.items()}
    return [_well_formed(inner) for inner in value] if isinstance(value, list) else value
