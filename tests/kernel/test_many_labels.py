"""Programs that give each request its own labels: more than the tables hold."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from ebpfprof.profilers import labels
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits import collector
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.target import LiveTarget
from tests.builds import versions
from tests.kernel.inside import collector_of_waits
from tests.kernel.programs import program
from tests.targets_run import Target

REQUESTS: Final = 100  # tests/targets/labels
ROOM: Final = 64


def served(
    live: LiveSession, target: LiveTarget, serving: Target, key: str = "request"
) -> Counter[str]:
    """What it recorded of a process that serves that many requests; see waits_of()."""
    live.start(target)
    serving.ask("serve", "done")
    live.stop(target)
    return waits_of(live, target, key)


def waits_of(live: LiveSession, target: LiveTarget, key: str = "request") -> Counter[str]:
    """How many waits in main.receive have each value of a label; "" for those without it."""
    (profile,) = live.report(live.sums(target)).profiles
    found = Counter[str]()
    for sample in profile.samples:
        functions = {frame.function for at in sample.locations for frame in at.frames}
        if "main.receive" in functions:
            (of,) = [label.value for label in sample.labels if label.key == key] or [""]
            found[str(of)] += sample.values[0]
    return found


def lost(live: LiveSession) -> dict[str, int]:
    return {loss.name: loss.count for loss in live.losses()}


@pytest.mark.parametrize("block_rate_ns", [1, 2])
def test_labelled_stacks_leave_room_for_waits(
    block_rate_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a removed process frees its labelled stacks for the next one."""
    monkeypatch.setattr(collector, "MAX_STACKS", ROOM)
    options = Options(kinds=("block",), block_rate_ns=block_rate_ns)
    with LiveSession(options, capacity=1) as live, Target.start(program("labels")) as serving:
        for turn in (1, 2):
            target = live.add(serving.pid)
            found = served(live, target, serving)
            labelled = {str(request): 1 for request in range(ROOM // 2)}
            assert found == {**labelled, "": REQUESTS - ROOM // 2}
            assert lost(live) == {"labelled_full": turn * (REQUESTS - ROOM // 2)}
            live.remove(target)


@pytest.mark.parametrize("minor", versions("1.23", "1.27"))  # labels in a map, and in a slice
def test_labels_that_are_not_selected_use_no_map_entries(
    minor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MAX_STACKS", ROOM)
    monkeypatch.setattr(labels, "MAX_LABEL_SETS", ROOM)
    options = Options(kinds=("block",), labels=("tier", "shard"))
    with (
        LiveSession(options, capacity=1) as live,
        Target.start(program("labels", minor)) as serving,
    ):
        found = served(live, live.add(serving.pid), serving, "tier")
        assert lost(live) == {}
    assert found == {"gold": REQUESTS / 2, "free": REQUESTS / 2}


@pytest.mark.full
def test_waits_without_selected_labels_count_as_unlabelled() -> None:
    options = Options(kinds=("block",), labels=("shard",))
    with (
        LiveSession(options, capacity=2) as live,
        Target.start(program("labels")) as serving,
        Target.start(program("labels")) as other,
    ):
        targets = [live.add(each.pid) for each in (serving, other)]
        collector_of_waits(live)._program.maps["labelled_most"].set_struct(0, {"stacks": 0})
        for target, each in zip(targets, (serving, other), strict=True):
            assert served(live, target, each, "shard") == {"": REQUESTS}
        assert lost(live) == {}


@pytest.mark.full
def test_removed_targets_free_their_label_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_LABEL_SETS", REQUESTS)
    with (
        LiveSession(Options(kinds=("block",)), capacity=3) as live,
        Target.start(program("labels")) as serving,
        Target.start(program("labels")) as other,
    ):
        labelled = {str(request): 1 for request in range(REQUESTS)}
        target = live.add(serving.pid)
        assert served(live, target, serving) == labelled
        target_of_other = live.add(other.pid)
        assert served(live, target_of_other, other) == {"": REQUESTS}
        assert lost(live)["label_sets_full"] == REQUESTS
        live.remove(target)
        target = live.add(serving.pid)  # with another number than before
        assert served(live, target, serving) == labelled
        assert lost(live)["label_sets_full"] == REQUESTS


def test_label_sets_are_kept_per_process() -> None:
    with (
        LiveSession(Options(kinds=("block",)), capacity=2) as live,
        Target.start(program("labels")) as serving,
        Target.start(program("labels")) as other,
    ):
        targets = [live.add(each.pid) for each in (serving, other)]
        for target, each in zip(targets, (serving, other), strict=True):
            live.start(target)
            each.ask("serve", "done")
        live.remove(targets[0])
        assert waits_of(live, targets[1]) == {str(request): 1 for request in range(REQUESTS)}
