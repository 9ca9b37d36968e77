"""Windows hold differences, oldest first, and no more of them than there is room for."""

from __future__ import annotations

from ebpfprof.continuous.history import Windows, make_room
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profilers.waits.kinds import BLOCK
from tests.unit.export.small_profile import LOCK, MAIN, RECEIVE, WORK


def sums(*counts: int) -> dict[str, Profile]:
    stacks = ((LOCK, WORK), (RECEIVE, WORK))
    samples = [Sample(s, (n, 10 * n)) for s, n in zip(stacks, counts, strict=False) if n]
    return {"block": BLOCK.make_profile(samples, [MAIN], time_ns=1, duration_ns=sum(counts))}


def counts(profile: Profile) -> list[int]:
    return [sample.values[0] for sample in profile.samples]


def filled(*steps: tuple[int, ...], start_s: float = 100.0) -> Windows:
    """Windows of ten seconds each, with the sums at the end of each."""
    windows = Windows()
    windows.begin(start_s)
    for number, step in enumerate(steps, 1):
        windows.end(start_s + 10 * number, sums(*step), {})
    return windows


def test_a_window_holds_what_has_come_since_the_one_before() -> None:
    windows = filled((3, 1), (5, 1), (5, 4))

    assert [(w.start_s, w.end_s) for w in windows.kept] == [(100, 110), (110, 120), (120, 130)]
    assert [counts(w.profiles["block"]) for w in windows.kept] == [[3, 1], [2], [3]]


def test_what_is_new_in_a_window_is_taken_as_it_is() -> None:
    windows = Windows()
    for number, new in enumerate((sums(3), sums(2, 1)), 1):
        windows.end(10 * number, {}, {"cpu": new["block"]})

    assert [counts(w.profiles["cpu"]) for w in windows.kept] == [[3], [2, 1]]
    assert windows.sums == {}
    assert windows.totals == {"cpu": [6, 60]}


def test_totals_are_those_of_all_windows() -> None:
    windows = filled((3, 1), (5, 1), (5, 4))
    windows.forget(1000)

    assert windows.totals == {"block": [9, 90]}


def test_after_a_pause_it_begins_when_it_is_recorded_again() -> None:
    windows = filled((3,))
    windows.begin(500)
    windows.end(505, sums(4), {})

    assert (windows.kept[-1].start_s, windows.kept[-1].end_s) == (500, 505)
    assert counts(windows.kept[-1].profiles["block"]) == [1]


def test_those_of_a_time_are_found_also_in_part() -> None:
    windows = filled((1,), (3,), (6,))

    def found(from_s: float, to_s: float) -> list[list[int]]:
        return [counts(each) for each in windows.between("block", from_s, to_s)]

    assert found(0, 1000) == [[1], [2], [3]]
    assert found(110, 120) == [[2]]
    assert found(119, 121) == [[2], [3]]
    assert found(130, 1000) == []
    assert windows.between("mutex", 0, 1000) == []


def test_old_ones_are_forgotten() -> None:
    windows = filled((1,), (3,), (6,))
    windows.forget(120)
    assert [w.end_s for w in windows.kept] == [120, 130]


def test_the_oldest_of_all_make_room() -> None:
    one, other = filled((1, 1), (2, 2), (3, 3)), filled((1,), (2,), start_s=105)
    everything = [one, other]

    sizes = [5, 5, 5, 4, 4]  # of their samples and of what a profile takes without any

    make_room(everything, sum(sizes))
    assert [len(w.kept) for w in everything] == [3, 2]
    make_room(everything, sum(sizes) - 1)
    assert [len(w.kept) for w in everything] == [2, 2]
    make_room(everything, sum(sizes) - 6)
    assert [len(w.kept) for w in everything] == [2, 1]
    make_room(everything, 0)
    assert [len(w.kept) for w in everything] == [0, 0]


def test_windows_without_a_sample_take_room_too() -> None:
    idle = filled(*[()] * 100)
    make_room([idle], 60)
    assert len(idle.kept) == 20
