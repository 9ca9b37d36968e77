"""Programs with a lock for each request: more locks than the tables can distinguish."""

from __future__ import annotations

from collections import Counter

import pytest

from ebpfprof.profile.lock_labels import ADDRESS, OTHER_LOCKS, without_locks
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits import collector
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.session import Session
from tests.kernel.programs import program
from tests.targets_run import Target

ROOM = 128  # stacks in the table: half of them, of each kind, may be of a lock
REQUESTS = 200


def of_locks(profile: Profile) -> Counter[str]:
    """How many events there were of each lock, by the label of its address."""
    found = Counter[str]()
    for sample in profile.samples:
        for label in sample.labels:
            if label.key == ADDRESS:
                found[str(label.value)] += sample.values[0]
    return found


def test_locks_without_room_are_added_up_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a removed process frees the room of its locks for the next one."""
    monkeypatch.setattr(collector, "MAX_STACKS", ROOM // collector.MANY_STACKS)
    options = Options(kinds=("block", "mutex"), lock_labels=True)
    with LiveSession(options, capacity=1) as live, Target.start(program("manylocks")) as running:
        for turn in (1, 2):
            target = live.add(running.pid)
            live.start(target)
            running.ask(f"lock {REQUESTS}", "done")
            live.stop(target)
            block, mutex = live.report(live.sums(target)).profiles
            found = {kind: of_locks(each) for kind, each in (("block", block), ("mutex", mutex))}
            # A wait and a release of each lock: the first ones have rows of their own.
            others = {kind: each.pop(str(OTHER_LOCKS[1].value)) for kind, each in found.items()}
            for kind, each in found.items():
                assert set(each.values()) == {1}, kind
                assert len(each) + others[kind] == REQUESTS
            assert sum(map(len, found.values())) == ROOM // 2
            lost = {loss.name: loss.count for loss in live.losses()}
            assert lost == {"locks_many": turn * sum(others.values())}
            # No event is lost, and without these labels there is nothing to see of it.
            (whole,) = [
                sample.values[0]
                for sample in without_locks(mutex).samples
                if any("main.use" in frame.function for frame in sample.frames)
            ]
            assert whole == REQUESTS
            live.remove(target)


def test_the_table_of_locks_has_a_row_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MAX_STACKS", ROOM // collector.MANY_STACKS)
    options = Options(kinds=("mutex",), by_lock=True)
    with Target.start(program("manylocks")) as running, Session([running.pid], options) as session:
        session.start()
        running.ask(f"lock {REQUESTS}", "done")
        (report,) = session.finish()
    (others,) = [lock for lock in report.locks if lock.address == 0]
    assert others.name == OTHER_LOCKS[0].value
    assert others.contentions > 0
    assert sum(lock.contentions for lock in report.locks) == REQUESTS


def test_labels_alone_distinguish_fewer_locks_than_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Naming them takes time at each reading, of which `serve` makes many.

    Half of the ten stacks are those that waited, which a mutex profile does not show.
    """
    monkeypatch.setattr(collector, "FEW_LOCKS", 10)
    for by_lock, reported in ((False, 5), (True, REQUESTS)):
        options = Options(kinds=("mutex",), lock_labels=True, by_lock=by_lock)
        with (
            LiveSession(options, capacity=1) as live,
            Target.start(program("manylocks")) as running,
        ):
            target = live.add(running.pid)
            live.start(target)
            running.ask(f"lock {REQUESTS}", "done")
            (profile,) = live.report(live.sums(target)).profiles
        found = of_locks(profile)
        assert len(found.keys() - {OTHER_LOCKS[1].value}) == reported
        assert found.total() == REQUESTS
