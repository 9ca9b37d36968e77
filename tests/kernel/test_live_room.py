"""The slots that a live session has for targets."""

from __future__ import annotations

import os

import pytest

from ebpfprof.errors import AttachFailed, TargetGone
from ebpfprof.profile.model import Kind
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.loaded_profilers import ProcessRecordings
from tests.builds import in_full
from tests.kernel.kernel_state import has_probes, open_files
from tests.kernel.live_counts import HANDS, counts
from tests.kernel.programs import program
from tests.targets_run import Target


def test_full_session_refuses_a_target_and_leaves_no_probe() -> None:
    with Target.start(program("steps")) as steps:
        with LiveSession(Options(), capacity=2) as live:
            targets = [live.add(steps.pid), live.add(steps.pid)]
            for target in targets:
                live.start(target)
            steps.ask("hand", "done")
            assert [counts(live, t, "main.hand")["block"] for t in targets] == [HANDS, HANDS]
            with pytest.raises(AttachFailed, match="ebpfprof records 2 processes already"):
                live.add(steps.pid)
            assert has_probes(steps.pid)
        assert not has_probes(steps.pid)


def test_removed_targets_free_their_slot() -> None:
    """Nothing of the target before is left: no sums, rows, rules or samples."""
    options = Options(kinds=("block", "mutex", "cpu"))
    with LiveSession(options, capacity=1) as live, Target.start(program("steps")) as steps:
        for step in ("hand", "park", "burn", "hand"):
            target = live.add(steps.pid)
            start = live.start(target)
            steps.ask(step, "done")
            found = counts(live, target, f"main.{step}", start)
            others = {"main.hand", "main.burn", "main.park"} - {f"main.{step}"}
            assert found["block"] == (HANDS if step == "hand" else 0)
            assert found["cpu"] > 0 or step != "burn"
            for other in others:
                assert set(counts(live, target, other, start).values()) == {0}, (step, other)
            live.remove(target)
            with pytest.raises(TargetGone):
                live.report(live.sums(target))
            with pytest.raises(TargetGone):
                live.report(start)
            if step == "park":
                steps.ask("wake", "done")  # while it is not recorded
            live.stop(target)
        assert not has_probes(steps.pid)


@pytest.mark.parametrize("max_overhead", [*in_full(0), 1])
@pytest.mark.parametrize("kinds", [*in_full((("cpu",),), (("block", "mutex"),)), ("block", "cpu")])
def test_targets_that_end_while_they_are_started_free_their_slot(
    kinds: tuple[Kind, ...], max_overhead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ProcessRecordings.start

    def killed_before(recordings: ProcessRecordings) -> int:
        steps.kill()
        return start(recordings)

    monkeypatch.setattr(ProcessRecordings, "start", killed_before)
    options = Options(kinds=kinds, max_overhead=max_overhead)
    with LiveSession(options, capacity=1) as live:
        files = []
        for _ in range(3):
            with Target.start(program("steps")) as steps:
                target = live.add(steps.pid)
                with pytest.raises(TargetGone):
                    live.start(target)
            live.remove(target)
            files.append(open_files(os.getpid()))
        assert files[1] == files[0] == files[2]
