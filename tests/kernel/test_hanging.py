"""Goroutines that hang are reported although no profile of ended waits has them."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime.waits.standing import HANGING
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import Report
from ebpfprof.profilers.waits import long_waits
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.session import Session
from tests.builds import NEWEST, versions
from tests.kernel.parked_program import running
from tests.kernel.programs import program
from tests.targets_run import Target

OPTIONS = Options(kinds=("block",), max_overhead=1)


def hang_sentences(report: Report) -> list[str]:
    """The sentences about goroutines that did not move."""
    return [hint for hint in report.hints if "did not move" in hint]


def recorded(pid: int, seconds: float) -> Report:
    with Session([pid], OPTIONS) as session:
        session.start()
        session.wait(seconds, lambda _: False)
        (report,) = session.finish()
    return report


@pytest.mark.parametrize("version", versions())
def test_locks_and_sends_that_hang_are_reported(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_waits, "HANGING", HANGING._replace(ns=200_000_000))
    with running(version, "plain") as run:
        found = hang_sentences(recorded(run.target.pid, 0.5))
        run.target.kill()
    assert len(found) == 3
    sends = len(run.reports["send"]["goids"])
    assert found[0].startswith(f"{sends} goroutines of process {run.target.pid} did not move for ")
    assert "chan send in main.send (operations.go:" in found[0]
    assert found[-1].endswith(f"\n    ebpfprof dump --pid {run.target.pid}")
    assert any("RWMutex.RLock in main.readLock" in each for each in found)


def test_they_are_reported_while_a_recording_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_waits, "HANGING", HANGING._replace(ns=100_000_000))
    with running(NEWEST, "plain") as run, LiveSession(OPTIONS) as live:
        target = live.add(run.target.pid)
        live.start(target)
        while not hang_sentences(live.report(live.sums(target))):
            pass
        live.remove(target)
        run.target.kill()


@pytest.mark.full
def test_sends_that_move_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_waits, "HANGING", HANGING._replace(ns=200_000_000))
    # As many sends as take longer than the recording: one goroutine or the other always waits.
    with Target.start(program("pingpong"), "-sends=100000000") as target:
        target.say("go")
        assert hang_sentences(recorded(target.pid, 0.6)) == []
        target.kill()
