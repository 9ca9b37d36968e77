"""How often functions stand in the profiles of a live session."""

from __future__ import annotations

from ebpfprof.profile.model import Profile
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.reports import IntervalStart
from ebpfprof.recording.target import LiveTarget

HANDS = 11  # ten values and the end


def count_in(profile: Profile, function: str) -> int:
    return sum(
        sample.values[0]
        for sample in profile.samples
        if any(f.function.startswith(function) for at in sample.locations for f in at.frames)
    )


def counts(
    live: LiveSession, target: LiveTarget, function: str, samples: IntervalStart | None = None
) -> dict[str, int]:
    reports = [live.snapshot(target), *([live.read(target, samples)] if samples else [])]
    assert [report.failure for report in reports if report.failure] == []
    profiles = [profile for report in reports for profile in report.profiles]
    return {profile.kind: count_in(profile, function) for profile in profiles}
