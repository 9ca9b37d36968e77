"""The file format of speedscope (https://www.speedscope.app), with one profile per sample type.

Speedscope reads pprof files, too, but shows only one sample type and no inlined functions of them.
Source of the format: speedscope's src/lib/file-format-spec.ts.
"""

from typing import Any

from ebpfprof.console.text import well_formed
from ebpfprof.errors import InvalidProfile
from ebpfprof.export.frames import FrameTable, ShownFrame
from ebpfprof.export.json_profile import dumped
from ebpfprof.export.kinds import title
from ebpfprof.profile.model import Profile

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = ("nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")


def encode(profile: Profile, *, index: int = -1) -> bytes:
    """The profile as speedscope's JSON, in ASCII; `index` selects the sample type to show first.

    Raises InvalidProfile if a value is negative, as in a difference: speedscope can't show that.
    """
    table = FrameTable()
    sums: dict[tuple[int, ...], list[int]] = {}
    for sample in profile.samples:
        if min(sample.values) < 0:
            raise InvalidProfile(
                "Speedscope cannot show negative values, such as those of a difference: use "
                "another format, or ebpfprof diff on the two profiles."
            )
        known = sums.setdefault(tuple(table.stack(sample)), [0] * len(sample.values))
        for column, value in enumerate(sample.values):
            known[column] += value
    frames = table.frames
    # Sorted, stacks with the same callers are neighbours in speedscope's view by time.
    ordered = sorted(sums.items(), key=lambda item: [frames[n].function for n in item[0]])
    return dumped(
        {
            "$schema": _SCHEMA,
            "exporter": "ebpfprof",
            "name": title(profile),
            "activeProfileIndex": range(len(profile.sample_types))[index],
            "shared": {"frames": [_frame(frame) for frame in frames]},
            "profiles": [
                _sampled(value_type.type, value_type.unit, [(s, v[i]) for s, v in ordered if v[i]])
                for i, value_type in enumerate(profile.sample_types)
            ],
        }
    )


def _frame(frame: ShownFrame) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": well_formed(frame.function)}
    if frame.file:
        fields["file"] = well_formed(frame.file)
    if frame.line > 0:
        fields["line"] = frame.line
    return fields


def _sampled(name: str, unit: str, stacks: list[tuple[tuple[int, ...], int]]) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": well_formed(name),
        "unit": unit if unit in _UNITS else "none",
        "startValue": 0,
        "endValue": sum(value for _, value in stacks),
        "samples": [stack for stack, _ in stacks],
        "weights": [value for _, value in stacks],
    }
