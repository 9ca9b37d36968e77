"""Tables that are too small: what does not fit is counted and said, the rest is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebpfprof.collectors import waits
from ebpfprof.export import pprof
from ebpfprof.losses import loss_kinds
from ebpfprof.options import Options
from ebpfprof.profile import Profile
from ebpfprof.session import Session
from tests.differential.stacks import by_stack
from tests.targets_run import Target
from tests.toolchains import toolchain

BLOCKOPS = Path(__file__).parent.parent / "targets" / "blockops"


def record(folder: Path) -> tuple[Profile, Profile, dict[str, int]]:
    """Go's profile, ours, and what we lost, by name."""
    own = folder / "go.prof"
    program = toolchain("1.27").build(BLOCKOPS)
    with Target.start(program, "-blockrate=1", f"-profile={own}") as target:
        with Session([target.pid], Options()) as session:
            session.start()
            target.ask("go", "done")
            assert json.loads(target.expect("{"))
            ((ours,),) = [report.profiles for report in session.finish()]
            lost = {loss.name: loss.count for loss in session.losses()}
        target.ask("write", "written")
    return pprof.decode(own.read_bytes(), kind="block"), ours, lost


@pytest.mark.parametrize(
    ("limit", "size", "loss"),
    [("_MAX_STACKS", 8, "stacks_full"), ("_MAX_WAITS", 4, "waits_full")],
)
def test_a_full_table_is_counted_and_wrongs_nothing(
    limit: str, size: int, loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, limit, size)
    go, ours, lost = record(tmp_path)

    theirs, mine = by_stack(go), by_stack(ours)
    assert set(lost) == {loss}
    assert any(comment.startswith("lost: ") and loss in comment for comment in ours.comments)
    assert mine
    assert set(mine) < set(theirs)
    missing = sum(value.count for value in theirs.values())
    missing -= sum(value.count for value in mine.values())
    # Waits for the runtime's own semaphores are counted, too, which Go does not show; and of an
    # operation without a row, each park.
    assert missing <= lost[loss] < missing * 1.25
    if limit == "_MAX_STACKS":
        assert all(mine[stack].count == theirs[stack].count for stack in mine)
        assert len(mine) <= size


def test_every_kind_of_loss_has_a_name_and_words() -> None:
    kinds = loss_kinds()
    assert {"waits_full", "stacks_full", "totals_full", "stack_moving"} <= {n for n, _ in kinds}
    assert all(text and not text.endswith(".") for _, text in kinds)
