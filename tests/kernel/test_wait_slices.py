"""Waits by time and length: of a program that waits for a short time first, then for a long one."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ebpfprof.profile.model import Profile
from ebpfprof.profile.wait_histogram import SCALE
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.builds import in_full
from tests.kernel.programs import program
from tests.kernel.windowed_runs import is_below
from tests.targets_run import Target

LENGTH_S = 15.0
"""For so long it may record: a sixtieth is the length of a slice."""
LONG_S = 0.3
LONG_WAITS = 60
CLOCK_S = 0.05  # between our begin of the recording and that of the probes
EXACT = Options(kinds=("block",))
EIGHTH = Options(kinds=("block",), one_in_eight=True)


def recorded(options: Options) -> tuple[Profile, list[int], float]:
    """The profile, the lengths that the program logged, and when the long waits began."""

    def work(target: Target) -> float:
        target.ask("go short 8000", "done")
        middle_s = time.time()
        target.ask(f"go long {LONG_WAITS}", "done")
        return middle_s

    with Target.start(program("lengths")) as target:
        with Session([target.pid], options, has_slices=True) as session:
            session.start()
            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(work, target)
                session.wait(LENGTH_S, lambda _: done.done())
            (report,) = session.finish()
        assert session.failures() == []
        logged = json.loads(target.ask("log", "["))
    (profile,) = report.profiles
    return profile, logged, done.result()


@pytest.mark.parametrize("options", [EXACT, *in_full(EIGHTH)])
def test_waits_are_where_they_ended(options: Options) -> None:
    profile, logged, middle_s = recorded(options)
    slices = profile.slices
    assert slices
    assert len(slices.times) >= 2
    assert [end for _, end in slices.times[:-1]] == [start for start, _ in slices.times[1:]]
    for sample in profile.samples:
        cells = list(slices.cells(sample))
        assert sum(count for _, _, count, _ in cells) == sample.values[0]
        assert sum(value for *_, value in cells) == sample.values[1]
    below = [sample for sample in profile.samples if is_below(sample, "wait")]
    cells = [cell for sample in below for cell in slices.cells(sample)]
    longest = SCALE.bucket_of(max(logged[:-LONG_WAITS]))
    least = SCALE.bucket_of(int(0.9 * LONG_S * 1e9))
    known = [(index, bucket) for index, bucket, count, _ in cells if bucket is not None and count]
    for index, bucket in known:
        start_s, end_s = slices.times[index]
        if end_s < middle_s + LONG_S - CLOCK_S:
            assert bucket <= longest + 1
        if start_s > middle_s + CLOCK_S:
            assert bucket >= least
    assert {bucket >= least for _, bucket in known} == {False, True}
    if options is EXACT:
        long = sum(count for _, bucket, count, _ in cells if bucket and bucket >= least)
        assert long == sum(ns >= SCALE.lower_ns(least) for ns in logged)
