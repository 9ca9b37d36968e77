"""How often functions stand in the profiles of a live session."""

from __future__ import annotations

from ebpfprof.profile.model import Profile
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.reports import ProcessSums
from ebpfprof.recording.target import LiveTarget

HANDS = 11  # ten values and the end


def count_in(profile: Profile, function: str) -> int:
    return sum(
        sample.values[0]
        for sample in profile.samples
        if any(f.function.startswith(function) for at in sample.locations for f in at.frames)
    )


def counts(
    live: LiveSession, target: LiveTarget, function: str, since: ProcessSums | None = None
) -> dict[str, int]:
    report = live.report(live.sums(target), since)
    assert report.failure is None
    return {profile.kind: count_in(profile, function) for profile in report.profiles}
