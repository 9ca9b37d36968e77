"""The end of a recording with a bound: no wait is longer than the recorded time."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from ebpfprof.errors import AttachFailed
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.process.process import Target as Opened
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.probe_sites import SiteTable
from ebpfprof.profilers.waits.rows import WaitsConfig
from tests.builds import in_full
from tests.go_target import inspect
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.kernel.windowed_runs import pingpong_recorded
from tests.recorder import only_profile
from tests.targets_run import Target

BOUNDED = WaitsConfig(block=True, mutex=True, one_in_eight=True)
# In a tight ping-pong every wait costs several times as much as the first bound, and one in eight
# costs less. It also costs more than the second: the probes are attached for windows.
BOUNDS = ("in place of every wait", "for a window")
TURNS = 200


@pytest.mark.parametrize("bound", ["60", *in_full("0.5")], ids=BOUNDS)
def test_it_ends_while_probes_of_one_wait_in_eight_are_attached(bound: str, tmp_path: Path) -> None:
    options = ("--duration", "600", "--max-overhead", bound, "--profile", "block")
    _, finished = pingpong_recorded("ends while probes are attached", tmp_path, *options)
    assert finished.code == 0, finished.stderr
    profile = only_profile(tmp_path)
    assert profile.samples
    waited_ns = sum(sample.values[1] for sample in profile.samples)
    assert 0 < waited_ns <= 3 * profile.duration_ns  # two goroutines, and the main one


def test_no_tracked_wait_is_longer_than_its_recording() -> None:
    """Goroutines wait already when the probes come, and one of two wakes the other."""
    with (
        Target.start(program("parked")) as running,
        Opened(running.pid) as target,
        WaitsCollector(1, BOUNDED) as waits,
    ):
        go = inspect(target)
        waits.load()
        began_ns = waits.attach_one_in_eight(0, go)
        waits.note_sample(0, 0)
        for _ in range(TURNS):
            running.ask("", "turned")
        waits.stop()
        length_ns = kernel_now_ns() - began_ns
        sums = {stack: each for stack, each in waits.tables.take(0).items() if each.parks}
    assert sum(each.parks for each in sums.values()) > 0
    for each in sums.values():
        assert each.delay_ns / 8 <= length_ns * each.parks
        assert each.squares <= length_ns**2 * each.parks


@pytest.mark.parametrize("runs_queue", [False, True], ids=["one in eight", "every wait"])
def test_if_not_all_probes_can_be_attached_none_stays(runs_queue: bool) -> None:
    config = WaitsConfig(block=True, mutex=False, one_in_eight=True, run_queue=runs_queue)
    no_room = AttachFailed("There is no room for them.")
    last_ones = (
        mock.patch.object(SiteTable, "probes", side_effect=no_room)
        if runs_queue
        else mock.patch.object(SiteTable, "run_probes", side_effect=no_room)
    )
    with (
        Target.start(program("pingpong")) as target,
        Opened(target.pid) as process,
        WaitsCollector(1, config) as waits,
    ):
        waits.load()
        attach = waits.attach if runs_queue else waits.attach_one_in_eight
        with last_ones, pytest.raises(AttachFailed, match="no room"):
            attach(0, inspect(process))
        assert not has_probes(target.pid)
