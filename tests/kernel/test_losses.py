"""Tables that are too small: lost events are counted and reported, the rest is right."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ebpfprof.export import pprof
from ebpfprof.kernel.losses import loss_kinds
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits import collector
from ebpfprof.profilers.waits.rows import Waiting
from ebpfprof.recording.session import Session
from tests.builds import in_full
from tests.differential.mutexes import below, without_runtime_locks
from tests.differential.stacks import by_stack
from tests.kernel.programs import TARGETS
from tests.targets_run import Target
from tests.toolchains import toolchain

ROWS = 8

GO_RECORDS: dict[Waiting, tuple[str, str]] = {
    "block": ("blockops", "-blockrate=1"),
    "mutex": ("mutexops", "-mutexfraction=1"),
}


@dataclass(frozen=True)
class Outcome:
    """Go's profile, ours, what we lost, by name, and what the program said of its run."""

    go: Profile
    ours: Profile
    lost: dict[str, int]
    said: dict[str, Any]


def record(folder: Path, kind: Waiting, *arguments: str) -> Outcome:
    own = folder / "go.prof"
    name, go_records = GO_RECORDS[kind]
    program = toolchain("1.27").build(TARGETS / name)
    with Target.start(program, go_records, f"-profile={own}", *arguments) as target:
        with Session([target.pid], Options(kinds=(kind,))) as session:
            session.start()
            target.ask("go", "done")
            output = json.loads(target.expect("{"))
            ((ours,),) = [report.profiles for report in session.finish()]
            lost = {loss.name: loss.count for loss in session.losses()}
        target.ask("write", "written")
    go = pprof.decode(own.read_bytes(), kind=kind)
    return Outcome(without_runtime_locks(go), ours, lost, output)


@pytest.mark.parametrize("kind", ["block", *in_full("mutex")])
@pytest.mark.parametrize(
    ("limit", "loss"),
    [
        (mock.patch.object(collector, "MAX_STACKS", ROWS), "stacks_full"),
        *in_full((mock.patch.object(collector, "MAX_WAITS", 4), "waits_full")),
    ],
)
def test_a_full_table_is_counted_and_the_rest_is_right(
    kind: Waiting, limit: AbstractContextManager[int], loss: str, tmp_path: Path
) -> None:
    with limit:
        outcome = record(tmp_path, kind)

    theirs, mine = by_stack(outcome.go), by_stack(outcome.ours)
    assert set(outcome.lost) == {loss}
    comments = outcome.ours.comments
    assert any(comment.startswith("incomplete: ") and loss in comment for comment in comments)
    assert mine
    assert set(mine) <= set(theirs)
    if loss == "stacks_full":  # else some waits of each stack may have found a row
        assert set(mine) != set(theirs)
    missing = sum(value.count for value in theirs.values())
    missing -= sum(value.count for value in mine.values())
    # Waits for the runtime's own semaphores are counted, too, which Go does not show; and of an
    # operation without a row, each park.
    assert missing <= outcome.lost[loss] < missing * 1.25
    if loss == "stacks_full":
        assert all(mine[stack].count == theirs[stack].count for stack in mine)
        assert len(mine) <= ROWS


@pytest.mark.full
def test_with_a_full_table_of_lengths_counts_and_delays_are_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MAX_LENGTHS", 8)
    outcome = record(tmp_path, "block")
    theirs, mine = by_stack(outcome.go), by_stack(outcome.ours)
    assert set(outcome.lost) == {"lengths_full"}
    assert {stack: value.count for stack, value in mine.items()} == {
        stack: value.count for stack, value in theirs.items()
    }
    delays = [sum(each.delay_ns for each in found.values()) for found in (mine, theirs)]
    assert delays[0] > 0.9 * delays[1]
    known = sum(sample.lengths.total for sample in outcome.ours.samples)
    unknown = sum(value.count for value in mine.values()) - known
    # Waits for the runtime's own semaphores are recorded, too, and not shown.
    assert 0 < unknown <= outcome.lost["lengths_full"] < 1.25 * unknown


def test_with_a_full_lock_table_releases_are_charged_the_woken_waiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MAX_LOCKS", 1)
    outcome = record(tmp_path, "mutex", "-only=^$", "-crowds=^mutexOf", "-churn=200")

    theirs, mine = by_stack(outcome.go), by_stack(outcome.ours)
    assert set(outcome.lost) == {"locks_full"}
    assert outcome.lost["locks_full"] > 3 * 200
    assert {stack: value.count for stack, value in mine.items()} == {
        stack: value.count for stack, value in theirs.items()
    }
    truth = {name: sums["delay_ns"] for name, sums in outcome.said["truth"].items()}
    charged = {name: below(outcome.ours, name).delay_ns for name in truth}
    for first, following in (("firstOf5", "nextOf5"), ("firstOf20", "nextOf20")):
        assert charged[first] < truth[first] / 4
        waited = truth[first] + truth[following]
        assert abs(charged[first] + charged[following] - waited) < waited / 50


def test_every_kind_of_loss_has_a_name_and_words() -> None:
    kinds = loss_kinds()
    assert {"waits_full", "stacks_full", "totals_full", "stack_moving"} <= {n for n, _ in kinds}
    assert all(text and not text.endswith(".") for _, text in kinds)


def test_losses_are_not_reported_for_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MAX_STACKS", 8)
    block = toolchain("1.27").build(TARGETS / "blockops")
    with (
        Target.start(toolchain("1.27").build(TARGETS / "parked")) as quiet,
        Target.start(block, "-blockrate=0") as loses,
        Session([quiet.pid, loses.pid], Options(kinds=("block",))) as session,
    ):
        session.start()
        loses.ask("go", "done")
        reports = session.finish()
        (in_all,) = session.losses()
    comments = [" ".join(profile.comments) for report in reports for profile in report.profiles]
    assert "incomplete" not in comments[0]
    assert f"incomplete: {in_all}" in comments[1]
