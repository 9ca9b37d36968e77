"""Go's runtime under stress while it is recorded: all of its stress switches, one target each."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kernel.unharmed import ALL_PROFILES, check, checker, whole_profiles
from tests.recorder import recording

pytestmark = pytest.mark.alone

# GODEBUG switches that the runtime of that version has (src/runtime/extern.go, runtime1.go).
SWITCHES = (
    ("1.27", "gcstoptheworld=1"),
    ("1.27", "gcstoptheworld=2"),
    ("1.27", "gccheckmark=1"),
    ("1.27", "gcshrinkstackoff=1"),
    ("1.27", "asyncpreemptoff=1"),
    ("1.27", "adaptivestackstart=1,clobberfree=1"),
    ("1.19", "gccheckmark=1"),
    ("1.19", "asyncpreemptoff=1,gcshrinkstackoff=1"),
)


@pytest.mark.full
def test_targets_stay_right_under_stress_of_the_runtime(tmp_path: Path) -> None:
    with ExitStack() as held:
        targets = [
            held.enter_context(
                # A collection after little memory, so that there are many.
                checker("procs", "spread", minor=minor, env={"GODEBUG": switches, "GOGC": "20"})
            )
            for minor, switches in SWITCHES
        ]
        pids = ",".join(str(target.pid) for target in targets[1:])
        arguments = ("--pid", pids, *ALL_PROFILES)
        recorder = held.enter_context(recording(targets[0].pid, tmp_path, *arguments))
        for target in targets:
            check(target)
        recorder.interrupt()
        finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        assert "Traceback" not in finished.stderr
    profiles = whole_profiles(tmp_path)
    assert len(profiles) == 4 * len(SWITCHES)
    blocked = [profile for profile in profiles if profile.kind == "block"]
    assert len(blocked) == len(SWITCHES)
    for profile in blocked:
        names = {
            frame.function
            for sample in profile.samples
            for location in sample.locations
            for frame in location.frames
        }
        assert {"main.growStacks", "main.descend", "main.countUnderMutex.func1"} <= names
