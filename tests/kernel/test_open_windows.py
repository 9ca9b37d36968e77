"""--open with a bound on the overhead: goroutines that have not moved between samples only."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.kernel.programs import program
from tests.kernel.windowed_runs import is_below
from tests.targets_run import Target

LENGTH_S = 3
# The longest wait of goroutines that move is 0.62 s; others may take the processors meanwhile.
LONGEST_S = 1.5
STANDING = "waitForEver"
MOVING = ("waitLong", "useLock")


@pytest.fixture(scope="module")
def profile() -> Profile:
    """The open waits of `load` while it continues, with probes for a small part of the time.

    It takes so little CPU time that the bound allows no second window.
    """
    options = Options(kinds=("block", "mutex"), open_waits=True, max_overhead=0.5)
    load = ("-length=60s", "-calm", "-users=10", "-hold=2ms")
    with Target.start(program("load"), *load) as target:
        with Session([target.pid], options) as session:
            session.start()
            target.say("go")
            session.wait(LENGTH_S, lambda _: False)
            (report,) = session.finish()
        target.kill()
    assert report.coverage is not None
    assert report.coverage.is_scaled
    return next(profile for profile in report.profiles if profile.kind == "open")


def waited_s(sample: Sample) -> float:
    count, waited_ns = sample.values
    return waited_ns / count / 1e9


@pytest.mark.full
def test_goroutines_that_move_are_not_hangs(profile: Profile) -> None:
    """Waits that began when no probe was attached have a time, too, that is not too long."""
    too_long = Counter[str]()
    for sample in profile.samples:
        for name in MOVING:
            if is_below(sample, name) and waited_s(sample) > LONGEST_S:
                too_long[name] += sample.values[0]
    assert too_long == {}


def test_goroutines_that_hang_are_shown_with_their_times(profile: Profile) -> None:
    standing = [sample for sample in profile.samples if is_below(sample, STANDING)]
    assert sum(sample.values[0] for sample in standing) == 50
    assert all(LENGTH_S * 0.8 < waited_s(each) <= LENGTH_S * 1.5 for each in standing)
    assert all(sample.labels == () for sample in standing)


def test_a_wait_from_before_the_recording_says_so(profile: Profile) -> None:
    (sample,) = [each for each in profile.samples if is_below(each, "waitSinceBefore")]
    assert [(label.key, label.value) for label in sample.labels] == [
        ("began", "before the recording")
    ]


def test_the_profile_says_that_times_are_lower_bounds(profile: Profile) -> None:
    (output,) = [comment for comment in profile.comments if "lower bounds" in comment]
    assert re.search(
        r"goroutines that did not move between samples, \d+ ms apart on average", output
    )
