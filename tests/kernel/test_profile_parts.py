"""Each profile of a recording has what concerns it: its losses, the goroutines that Go shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits import collector
from ebpfprof.recording.session import Session
from tests.builds import versions
from tests.kernel.programs import program
from tests.recorder import end, recording
from tests.targets_run import Target


@pytest.mark.parametrize("minor", versions("1.19", "1.27"))
def test_open_waits_have_no_goroutine_of_the_runtime(minor: str, tmp_path: Path) -> None:
    """A program that asks for signals has one of the runtime's own, in a select."""
    with Target.start(program("idle", minor)) as target:
        with recording(target.pid, tmp_path, "--open") as recorder:
            end(recorder)
        (path,) = tmp_path.glob("*.open.pb.gz")
        functions = {
            frame.function
            for sample in pprof.decode(path.read_bytes()).samples
            for frame in sample.frames
        }
    assert "main.signalLoop" in functions
    assert "runtime.ensureSigM.func1" not in functions


def test_a_profile_has_the_losses_that_concern_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MAX_STACKS", 4)
    with Target.start(program("idle")) as target:
        options = Options(kinds=("block", "mutex", "cpu"), open_waits=True)
        with Session([target.pid], options) as session:
            session.start()
            target.ask("go", "done")
            (report,) = session.finish()
            lost = {loss.name: loss.count for loss in session.losses()}
    assert lost["stacks_full"]
    comments = {profile.kind: " ".join(profile.comments) for profile in report.profiles}
    reported = f"incomplete: {lost['stacks_full']} events not counted"
    assert reported in comments["block"]
    assert reported in comments["mutex"]
    assert "stacks_full" not in comments["cpu"]
    # Tables find the program's own lines by it.
    assert {profile.module for profile in report.profiles} == {"ebpfprof.test"}
