"""What keeps a program's objects alive, as JSON, and as a profile with a sample for each path.

docs/references.schema.json describes the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import printable, well_formed
from ebpfprof.export import json_profile
from ebpfprof.export.tables import references as table
from ebpfprof.profile.model import Frame, Location, Mapping, Profile, Sample, ValueType

if TYPE_CHECKING:
    from ebpfprof.profile.references import Path, Reasons, References

FORMAT: Final = "ebpfprof-references-1"
_PAGE_ROWS: Final = 60


def encode(references: References, pid: int, name: str, go_version: str, now_s: float) -> str:
    """One line. `now_s` is Unix time."""
    return _line(document(references, pid, name, go_version, now_s))


def document(
    references: References, pid: int, name: str, go_version: str, now_s: float
) -> dict[str, Any]:
    """What encode() writes."""
    return {
        **_head(pid, name, go_version, now_s),
        "objects": references.objects,
        "used_bytes": references.used,
        "changed_objects": references.changed,
        "changed_bytes": references.changed_bytes,
        "left_out_bytes": references.left_out,
        "stacks_missed": references.stacks_missed,
        "leaked_goroutines": list(references.leaked.ids),
        "leaked_objects": references.leaked.objects,
        "leaked_bytes": references.leaked.used,
        "roots": [
            {"kind": root.kind, "goroutines": list(root.goroutines), **_path(root.paths)}
            for root in references.roots
        ],
    }


def encode_reasons(reasons: Reasons, pid: int, name: str, go_version: str, now_s: float) -> str:
    """One line. `now_s` is Unix time."""
    return _line(
        {
            **_head(pid, name, go_version, now_s),
            "why": well_formed(reasons.asked),
            "objects": reasons.objects,
            "used_bytes": reasons.used,
            "freed_objects": reasons.freed_objects,
            "freed_bytes": reasons.freed,
            "paths": [
                {"path": list(map(well_formed, names)), "objects": objects, "used_bytes": used}
                for names, objects, used in reasons.paths
            ],
            "examples": [
                {
                    "address": example.address,
                    "used_bytes": example.used,
                    "references": [
                        {
                            "label": well_formed(cut.label),
                            "type": well_formed(cut.type),
                            "repeated": cut.repeated,
                            "freed_objects": cut.freed_objects,
                            "freed_bytes": cut.freed,
                        }
                        for cut in example.cuts
                    ],
                }
                for example in reasons.examples
            ],
        }
    )


def page(
    references: References, executable: str, time_ns: int, leaks: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What the page of `serve` shows: sentences, the places with the most bytes, a flame graph.

    `leaks` are findings about goroutines that can never continue.
    """
    used = references.used or 1
    return {
        "used_bytes": references.used,
        "objects": references.objects,
        "answers": table.answers(references),
        "notes": table.notes(references),
        "rows": [
            {
                "depth": depth,
                "name": printable(table.name_of(path)),
                "bytes": path.total,
                "share": path.total / used,
                "objects": path.total_objects,
            }
            for depth, path in table.rows_of(references, _PAGE_ROWS)
        ],
        "leaks": list(leaks),
        "profile": json_profile.document(profile(references, executable, time_ns)),
    }


def profile(references: References, executable: str, time_ns: int) -> Profile:
    """A sample for each path: its stack is the path, the objects are the leaf."""
    frames: dict[str, Location] = {}
    samples = []
    for names, path in flat(references):
        stack = tuple(frames.setdefault(name, _location(name)) for name in reversed(names))
        samples.append(Sample(stack, (path.objects, path.used)))
    return Profile(
        "",
        (ValueType("objects", "count"), ValueType("space", "bytes")),
        ValueType("space", "bytes"),
        1,
        tuple(samples),
        (Mapping(0, 0, 0, executable, ""),),
        time_ns,
        0,
        (),
        "space",
    )


def flat(references: References) -> Iterator[tuple[tuple[str, ...], Path]]:
    """All places with objects, each with its names from the root on."""
    places: list[tuple[tuple[str, ...], Path]] = [((), root.paths) for root in references.roots]
    while places:
        above, path = places.pop()
        label = f"{path.label} ({path.type})" if path.type else path.label or "?"
        names = (*above, well_formed(label))
        if path.objects:
            yield names, path
        places += [(names, below) for below in path.below]


def _location(name: str) -> Location:
    return Location(0, None, (Frame(name, "", 0),))


def _head(pid: int, name: str, go_version: str, now_s: float) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "pid": pid,
        "name": well_formed(name),
        "go_version": well_formed(go_version),
        "time_s": now_s,
    }


def _path(path: Path) -> dict[str, Any]:
    return {
        "label": well_formed(path.label),
        "type": well_formed(path.type),
        "objects": path.objects,
        "used_bytes": path.used,
        "total_objects": path.total_objects,
        "total_bytes": path.total,
        "below": [_path(below) for below in path.below],
    }


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document) + "\n"
