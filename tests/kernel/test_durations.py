"""The duration of a recording: from the first moment that counts to the last, for all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from tests.builds import in_full
from tests.kernel.programs import program
from tests.recorder import run
from tests.targets_run import Target

KINDS = ("block", "mutex", "cpu", "wall")
STANDING = 30_000
# One goroutine waits for its gate, one wakes it, and main waits for its input.
GOROUTINES = STANDING + 3
SECONDS = 0.6
# The kernel and we read the clock at slightly different moments.
CLOCKS_NS = 1_000_000


@pytest.fixture(scope="module")
def crowd() -> Iterator[Target]:
    with Target.start(program("crowd"), "-goroutines=1", f"-standing={STANDING}") as target:
        yield target


def recorded(crowd: Target, folder: Path, max_overhead: str) -> dict[str, Profile]:
    """The profiles of one recording, by kind."""
    folder.mkdir()
    finished = run(
        *("--pid", str(crowd.pid), "--profile", ",".join(KINDS), "-d", str(SECONDS)),
        *("--max-overhead", max_overhead),
        folder=folder,
    )
    assert finished.code == ExitCode.OK, finished.stderr
    return {kind: pprof.decode(next(folder.glob(f"*.{kind}.pb.gz")).read_bytes()) for kind in KINDS}


@pytest.mark.parametrize("max_overhead", [*in_full("0"), "1"])
def test_all_kinds_have_the_duration_of_the_recording(
    crowd: Target, tmp_path: Path, max_overhead: str
) -> None:
    profiles = recorded(crowd, tmp_path / "out", max_overhead)
    durations_ns = {profile.duration_ns for profile in profiles.values()}
    assert len(durations_ns) == 1
    (duration_ns,) = durations_ns
    assert duration_ns >= SECONDS * 1e9
    # The time of all goroutines is their number times the duration, by arithmetic.
    wall_ns = sum(sample.values[1] for sample in profiles["wall"].samples)
    assert wall_ns / duration_ns == pytest.approx(GOROUTINES, rel=1e-6)
    # One goroutine waits all the time: no longer than the recording, and hardly less.
    waited_ns = sum(sample.values[1] for sample in profiles["block"].samples)
    assert 0.5 * duration_ns < waited_ns <= duration_ns + CLOCKS_NS


@pytest.mark.full
def test_what_reading_many_goroutines_takes_is_not_recorded(
    crowd: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, or with a million goroutines, the last sample takes seconds."""
    from ebpfprof.goruntime.samples.shared_sampler import SharedSampler
    from ebpfprof.recording.session import Session

    stop, stopped_ns = SharedSampler.stop, []

    def slowly(sampler: SharedSampler) -> None:
        until_ns = kernel_now_ns() + 700_000_000
        while kernel_now_ns() < until_ns:
            pass
        stopped_ns.append(until_ns)
        stop(sampler)

    options = Options(kinds=("cpu", "wall", "block"), max_overhead=0)
    with Session([crowd.pid], options) as session:
        before_ns = kernel_now_ns()
        session.start()
        session.wait(0.3, lambda _: False)
        monkeypatch.setattr(SharedSampler, "stop", slowly)
        (report,) = session.finish()
    assert stopped_ns
    for profile in report.profiles:
        assert profile.duration_ns < stopped_ns[0] - before_ns - 600_000_000
    found = {profile.kind: profile for profile in report.profiles}
    waited_ns = sum(sample.values[1] for sample in found["block"].samples)
    assert 0 < waited_ns <= found["block"].duration_ns + CLOCKS_NS
    wall_ns = sum(sample.values[1] for sample in found["wall"].samples)
    assert wall_ns / found["wall"].duration_ns == pytest.approx(GOROUTINES, rel=1e-6)


@pytest.mark.full
def test_sums_of_recordings_with_pauses_between_have_the_time_of_all(crowd: Target) -> None:
    options = Options(kinds=("block", "wall"), max_overhead=0)
    with LiveSession(options) as session:
        target = session.add(crowd.pid)
        for _ in range(2):
            session.start(target)
            until_ns = kernel_now_ns() + 300_000_000
            while kernel_now_ns() < until_ns:
                pass
            session.stop(target)
        block, wall = session.report(session.sums(target)).profiles
    assert block.duration_ns == wall.duration_ns >= 600_000_000
    waited_ns = sum(sample.values[1] for sample in block.samples)
    assert 0 < waited_ns <= block.duration_ns + 2 * CLOCKS_NS
    wall_ns = sum(sample.values[1] for sample in wall.samples)
    assert wall_ns / wall.duration_ns == pytest.approx(GOROUTINES, rel=1e-6)


def test_rates_between_two_readings_are_of_the_time_between_them(crowd: Target) -> None:
    """Samples of that many goroutines are further apart than readings of `top`."""
    with LiveSession(Options(kinds=("wall",), wall_hz=1)) as session:
        target = session.add(crowd.pid)
        session.start(target)
        readings = []
        for _ in range(3):
            until_ns = kernel_now_ns() + 500_000_000
            while kernel_now_ns() < until_ns:
                pass
            (wall,) = session.report(session.sums(target)).profiles
            readings.append((sum(sample.values[1] for sample in wall.samples), wall.duration_ns))
    for (wall_ns, duration_ns), (later_wall_ns, later_ns) in pairwise(readings):
        rate = (later_wall_ns - wall_ns) / (later_ns - duration_ns)
        # Reading the goroutines takes a part of the time.
        assert 0.7 * GOROUTINES < rate < 1.3 * GOROUTINES
