"""The outputs that are kept in data/golden, and where two of one differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from tests.recorded import pipeline
from tests.recorded.program import DATA, PROGRAMS, Program
from tests.recorded.recordings import RECORDINGS
from tests.recorded.saved import Saved

GOLDEN: Final = DATA / "golden"
_FORMATS: Final = ("pb", "json", "folded", "txt")
_WAITS: Final = (
    *(f"{kind}.{suffix}" for kind in ("block", "mutex", "open") for suffix in _FORMATS),
    *("block.busy.txt", "open.busy.txt", "locks.txt", "comments.txt"),
)
_SINCE_MIDDLE: Final = (
    *(f"since-middle.{kind}.{suffix}" for kind in ("block", "mutex") for suffix in ("pb", "txt")),
    "since-middle.comments.txt",
)
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "exact": (
        *_WAITS,
        *_SINCE_MIDDLE,
        *(f"tenant.{kind}.pb" for kind in ("block", "mutex", "open")),
    ),
    "windows": _WAITS,
    "cpu": (*(f"cpu.{suffix}" for suffix in _FORMATS), "comments.txt", "since-middle.cpu.pb"),
}
"""By recording, what comes out of it."""
EVERY: Final = tuple(f"{recording}.{name}" for recording, names in NAMES.items() for name in names)


def all_outputs() -> dict[str, bytes]:
    """What comes out of all recordings now, by names of EVERY."""
    return {name: text for program in PROGRAMS for name, text in outputs_with(program).items()}


def outputs_with(program: Program) -> dict[str, bytes]:
    """What comes out of the recordings of a program."""
    return {
        f"{recording}.{name}": text
        for recording in NAMES
        if RECORDINGS[recording].program is program
        for name, text in pipeline.replayed(program.shown(), Saved.load(recording)).items()
    }


def difference(name: str, golden: bytes, found: bytes) -> str:
    """Where two versions of an output differ first, for people; "" if they don't."""
    if golden == found:
        return ""
    before, after = (list(_lines(name, each)) for each in (golden, found))
    counts = f"{len(before)} lines before, {len(after)} now"
    context = ""
    for number, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            inside = context if old.startswith(" ") or new.startswith(" ") else ""
            return f"{name}: line {number + 1} differs ({counts}){inside}\n- {old}\n+ {new}"
        if not old.startswith(" "):
            context = f", in\n  {old}"
    if len(before) != len(after):
        longer, sign = (before, "-") if len(before) > len(after) else (after, "+")
        at = min(len(before), len(after))
        return f"{name}: {counts}; the first line that only one has:\n{sign} {longer[at]}"
    at = next(i for i, (old, new) in enumerate(zip(golden, found, strict=False)) if old != new)
    return f"{name}: what it says is the same, but byte {at} differs: tables are ordered otherwise"


def _lines(name: str, output: bytes) -> Iterator[str]:
    if name.endswith(".pb"):
        yield from _profile_lines(output)
    elif name.endswith(".json"):
        yield from json.dumps(json.loads(output), indent=1, ensure_ascii=False).splitlines()
    else:
        yield from output.decode(errors="backslashreplace").split("\n")


def _profile_lines(encoded: bytes) -> Iterator[str]:
    profile = pipeline.decoded(encoded)
    yield f"time {profile.time_ns}, duration {profile.duration_ns}, period {profile.period}"
    yield f"types {profile.sample_types}, period's {profile.period_type}"
    yield from (f"mapping {each}" for each in profile.mappings)
    yield from (f"comment {each}" for each in profile.comments)
    for sample in profile.samples:
        labels = " ".join(f"{each.key}={each.value}{each.unit}" for each in sample.labels)
        leaf = sample.locations[0].frames[0].function if sample.locations[0].frames else "?"
        yield f"sample {sample.values} {labels} at {leaf}"
        for location in sample.locations:
            of = "no mapping" if location.mapping is None else "mapped"
            for frame in location.frames or (None,):
                yield f"  {location.address:#x} {of} {frame}"
