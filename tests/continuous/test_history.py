"""A history holds windows, oldest first, and uses a bounded amount of memory."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.continuous.history import History, limit_size, together
from ebpfprof.profile.completeness import Completeness
from ebpfprof.profile.delta import difference
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profilers.account import RecordingAccount
from ebpfprof.profilers.waits.kinds import BLOCK
from tests.continuous.fakes import counts
from tests.unit.export.small_profile import LOCK, MAIN, RECEIVE, WORK


def sums(*counts: int) -> dict[str, Profile]:
    stacks = ((LOCK, WORK), (RECEIVE, WORK))
    samples = [Sample(s, (n, 10 * n)) for s, n in zip(stacks, counts, strict=False) if n]
    return {"block": BLOCK.make_profile(samples, [MAIN], time_ns=1, duration_ns=sum(counts))}


def filled(*steps: tuple[int, ...], start_s: float = 100.0) -> History:
    """A history of windows of ten seconds each, with the sums at the end of each."""
    history = History()
    history.begin(start_s)
    before = sums()
    for number, step in enumerate(steps, 1):
        whole = sums(*step)
        window = {"block": difference(whole["block"], before["block"])}
        history.end(start_s + 10 * number, whole, window)
        before = whole
    return history


def test_windows_are_consecutive() -> None:
    history = filled((3, 1), (5, 1), (5, 4))

    assert [(w.start_s, w.end_s) for w in history.windows] == [(100, 110), (110, 120), (120, 130)]
    assert [counts(w.profiles["block"]) for w in history.windows] == [[3, 1], [2], [3]]


def test_profiles_of_new_events_enter_a_window_unchanged() -> None:
    history = History()
    for number, new in enumerate((sums(3), sums(2, 1)), 1):
        history.end(10 * number, {}, {"cpu": new["block"]})

    assert [counts(w.profiles["cpu"]) for w in history.windows] == [[3], [2, 1]]
    assert history.sums == {}
    assert history.totals == {"cpu": [6, 60]}


def test_totals_are_those_of_all_windows() -> None:
    history = filled((3, 1), (5, 1), (5, 4))
    history.forget(1000)

    assert history.totals == {"block": [9, 90]}


def test_it_knows_how_much_was_lost_since_the_first_recording() -> None:
    history = History()
    history.begin(100.0)
    for number, lost in enumerate((1, 3), 1):
        account = RecordingAccount(
            *("block", "block profile", "every event", 10),
            losses=(Loss("waits_full", "waits lost", lost),),
            events=97,
        )
        of_block = replace(sums(90, 7)["block"], account=account)
        whole = {"block": of_block, "mutex": sums(1)["block"]}
        history.end(100.0 + 10 * number, whole, {})
    assert history.completeness() == [Completeness(3, 97.0)]


def test_after_a_pause_a_window_begins_with_the_recording() -> None:
    history = filled((3,))
    history.begin(500)
    history.end(505, sums(4), sums(1))

    assert (history.windows[-1].start_s, history.windows[-1].end_s) == (500, 505)
    assert counts(history.windows[-1].profiles["block"]) == [1]


def test_windows_that_overlap_a_time_are_found() -> None:
    history = filled((1,), (3,), (6,))

    def found(from_s: float, to_s: float) -> list[list[int]]:
        return [
            counts(window.profiles["block"]) for window in history.between("block", from_s, to_s)
        ]

    assert found(0, 1000) == [[1], [2], [3]]
    assert found(110, 120) == [[2]]
    assert found(119, 121) == [[2], [3]]
    assert found(130, 1000) == []
    assert history.between("mutex", 0, 1000) == []


def test_windows_are_the_slices_of_a_kind_with_lengths() -> None:
    history = filled((3, 1), (5, 1), (5, 4))
    windows = history.between("block", 0, 1000)
    whole = together("block", windows, has_slices=True)
    assert whole.slices
    assert whole.slices.times == [(100, 110), (110, 120), (120, 130)]
    first, other = whole.samples
    assert list(whole.slices.cells(first)) == [(0, None, 3, 30), (1, None, 2, 20)]
    assert list(whole.slices.cells(other)) == [(0, None, 1, 10), (2, None, 3, 30)]
    assert together("block", windows).slices is None


def test_old_windows_are_dropped() -> None:
    history = filled((1,), (3,), (6,))
    history.forget(120)
    assert [w.end_s for w in history.windows] == [120, 130]


def test_the_oldest_windows_are_dropped_beyond_a_size() -> None:
    one, other = filled((1, 1), (2, 2), (3, 3)), filled((1,), (2,), start_s=105)
    everything = [one, other]

    sizes = [5, 5, 5, 4, 4]  # of their samples and of what a profile takes without any

    limit_size(everything, sum(sizes))
    assert [len(w.windows) for w in everything] == [3, 2]
    limit_size(everything, sum(sizes) - 1)
    assert [len(w.windows) for w in everything] == [2, 2]
    limit_size(everything, sum(sizes) - 6)
    assert [len(w.windows) for w in everything] == [2, 1]
    limit_size(everything, 0)
    assert [len(w.windows) for w in everything] == [0, 0]


def test_empty_windows_count_for_the_size() -> None:
    idle = filled(*[()] * 100)
    limit_size([idle], 60)
    assert len(idle.windows) == 20
