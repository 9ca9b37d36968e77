"""Delays of a recording in windows, from samples: held against arithmetic and Go's own profile."""

from __future__ import annotations

import math
import re
from pathlib import Path
from time import monotonic, sleep

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.recording.session import Session
from tests.bench.workloads import WORKLOADS, Running
from tests.differential.stacks import by_stack
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.recorder import Finished, only_profile, recording
from tests.targets_run import Target

pytestmark = pytest.mark.alone

BLOCK = ("--profile", "block", "--max-overhead", "1")
CROWD = 1500
SECONDS = 4.0


def wait(seconds: float) -> None:
    """Let that much time pass."""
    until = monotonic() + seconds
    while monotonic() < until:
        sleep(0.05)


def told_error(profile: Profile) -> float:
    """The standard error of all delays, as a part of them."""
    (found,) = re.findall(r"\+-(?:less than )?([\d.]+) % on delays", " ".join(profile.comments))
    return float(found) / 100


def is_scaled(finished: Finished) -> bool:
    """Whether the recording was in windows."""
    assert finished.code == ExitCode.OK, finished.stderr
    return "Sampled (" in finished.stdout.decode()


def test_a_crowd_has_waited_as_long_as_it_was_watched(tmp_path: Path) -> None:
    with Target.start(program("crowd"), f"-goroutines={CROWD}") as target:
        with recording(target.pid, tmp_path, *BLOCK) as recorder:
            wait(SECONDS / 2)
            recorder.interrupt()
            finished = recorder.finish()
        assert not has_probes(target.pid)
    assert is_scaled(finished)
    profile = only_profile(tmp_path)
    waited_ns = sum(sample.values[1] for sample in profile.samples)
    # All but what waits at the end, and what waited before it began: about 10 ms each. A goroutine
    # that was woken waits for a processor before it waits again.
    whole = CROWD * profile.duration_ns
    assert 0.8 * whole < waited_ns < (1 + 3 * told_error(profile)) * whole
    assert all(count > 0 and ns > 0 for count, ns in (s.values for s in profile.samples))


@pytest.mark.full
def test_bursts_have_gos_own_delays(tmp_path: Path) -> None:
    """The first of them uses up the budget; nothing of that is stretched over the pauses."""
    from contextlib import ExitStack

    (mutex,) = [each for each in WORKLOADS if each.name == "mutex"]
    own = tmp_path / "go"
    with ExitStack() as held:
        running = Running(mutex, held)
        units = running.units_in(0.2)
        running.target.ask("own block=1", "own")
        with recording(running.target.pid, tmp_path, *BLOCK) as recorder:
            until = monotonic() + 2 * SECONDS
            while monotonic() < until:
                running.round(units)
                wait(0.3)
            recorder.interrupt()
            finished = recorder.finish()
        running.target.ask(f"write {own}", "written")
    assert is_scaled(finished)
    (path,) = tmp_path.glob("*.block.pb.gz")
    profile = pprof.decode(path.read_bytes())
    theirs, ours = by_stack(pprof.decode(own.read_bytes(), kind="block")), by_stack(profile)
    longest = max(theirs, key=lambda stack: theirs[stack].count)
    truth = theirs[longest].delay_ns
    assert ours[longest].delay_ns == pytest.approx(truth, rel=0.1 + 4 * told_error(profile))
    # Counts are rougher; the old estimate was off by up to 500 times.
    ratio = ours[longest].count / theirs[longest].count
    assert abs(math.log(ratio)) < math.log(6)


@pytest.mark.full
def test_waits_that_end_while_probes_are_being_detached_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine that takes a part of a second."""
    detach = WaitsCollector.pause
    times = 0

    def slowly(collector: WaitsCollector, index: int) -> None:
        nonlocal times
        times += 1
        if times == 1:
            wait(SECONDS)
        detach(collector, index)

    monkeypatch.setattr(WaitsCollector, "pause", slowly)
    options = Options(kinds=("block",), max_overhead=1)
    with Target.start(program("crowd"), f"-goroutines={CROWD}") as target:
        with Session([target.pid], options) as session:
            session.start()
            session.wait(SECONDS, lambda _: False)
            (report,) = session.finish()
        target.kill()
    (profile,) = (each for each in report.profiles if each.kind == "block")
    assert times > 0
    waited_ns = sum(sample.values[1] for sample in profile.samples)
    assert waited_ns > 0.8 * CROWD * profile.duration_ns
