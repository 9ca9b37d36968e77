"""--earlier-waits: exact recordings with the waits that began before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebpfprof.profile.model import Sample
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.builds import versions
from tests.kernel.programs import program
from tests.recorder import run
from tests.targets_run import Target

WAITED_NS = 200_000_000  # "burn" takes half a second of CPU time
BEFORE = "before the recording"


def recorded(target: Target, *commands: str, earlier: bool) -> tuple[list[Sample], list[Sample]]:
    """The samples of park() in the block profile and of open waits, while it does these."""
    options = Options(("block",), earlier_waits=earlier, open_waits=True)
    with Session([target.pid], options) as session:
        session.start()
        for command in commands:
            target.ask(command, "done")
        ((block, still),) = [report.profiles for report in session.finish()]
        assert session.failures() == []
    return in_park(block.samples), in_park(still.samples)


def in_park(samples: tuple[Sample, ...] | list[Sample]) -> list[Sample]:
    return [sample for sample in samples if any(f.function == "main.park" for f in sample.frames)]


@pytest.mark.parametrize("version", versions())
def test_a_wait_that_began_before_counts_with_its_part(version: str) -> None:
    with Target.start(program("steps", version)) as target:
        target.ask("park", "done")
        found, still = recorded(target, "burn", "wake", earlier=True)
        assert [sample.values[0] for sample in found] == [1]
        assert found[0].values[1] > WAITED_NS
        functions = [frame.function for frame in found[0].frames]
        assert functions[:2] == ["runtime.chanrecv1", "main.park"]
        assert still == []


def test_without_the_option_it_does_not_count() -> None:
    with Target.start(program("steps")) as target:
        target.ask("park", "done")
        found, _ = recorded(target, "wake", earlier=False)
        assert found == []


def test_a_wait_that_continues_is_an_open_one_from_before() -> None:
    with Target.start(program("steps")) as target:
        target.ask("park", "done")
        found, still = recorded(target, "hand", earlier=True)
        assert found == []
        assert [[label.value for label in sample.labels] for sample in still] == [[BEFORE]]
        # Its next wait begins within a recording.
        found, still = recorded(target, "wake", "park", earlier=True)
        assert [sample.values[0] for sample in found] == [1]
        assert [[each.value for each in sample.labels] for sample in still] == [[]]


def test_the_command_takes_the_option(tmp_path: Path) -> None:
    with Target.start(program("steps")) as target:
        options = ("--profile", "block", "--max-overhead", "0", "--earlier-waits", "-d", "0.2")
        finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == 0, finished.stderr
