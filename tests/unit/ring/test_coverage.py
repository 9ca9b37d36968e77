"""Which time was watched: intervals, and the reasons for what was not."""

from __future__ import annotations

import random
import time as clock
from itertools import pairwise
from pathlib import Path

import pytest

from ebpfprof.ring.coverage import Gap, TimeWatched, agent_gaps, coverage, coverage_of_one
from ebpfprof.ring.intervals import both, length_ns, union, within, without
from ebpfprof.ring.reader import RecordedTime, RingArchive
from tests.unit.ring.made_up import (
    API,
    NS,
    SHOP,
    START_S,
    WINDOW_S,
    Clock,
    boottime_of,
    ring,
    window,
)

MINUTE = round(WINDOW_S)


def test_intervals_add_up_as_sets_of_moments_do() -> None:
    """Held against sets of whole numbers."""
    rng = random.Random(7)

    def some() -> list[tuple[int, int]]:
        begins = [rng.randrange(60) for _ in range(rng.randrange(6))]
        return [(begin, begin + rng.randrange(12)) for begin in begins]

    def moments(intervals: list[tuple[int, int]]) -> set[int]:
        return {at for begin, end in intervals for at in range(begin, end)}

    for _ in range(300):
        one, other = some(), some()
        assert moments(union(one)) == moments(one)
        assert moments(without(one, other)) == moments(one) - moments(other)
        assert moments(both(one, other)) == moments(one) & moments(other)
        assert moments(within(one, (10, 40))) == moments(one) & set(range(10, 40))
        assert length_ns(one) == len(moments(one))
        joined = union(one)
        assert all(a[1] < b[0] for a, b in pairwise(joined))


class History:
    """A ring that the test writes by minutes of the hour from START_S on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.writer = ring(folder, self.clock)

    def restart(self, minute: float) -> None:
        self.writer.close()
        self.clock.now_s = START_S + minute * MINUTE
        self.writer = ring(self.folder, self.clock)

    def record(self, first: int, last: int, **of: object) -> None:
        for minute in range(first, last):
            self.clock.now_s = START_S + (minute + 1) * MINUTE
            assert self.writer.write(window(START_S + minute * MINUTE, **of))  # type: ignore[arg-type]  # mypy can't know the fields

    def idle(self, minute: int) -> None:
        self.clock.now_s = START_S + minute * MINUTE
        self.writer.beat()

    def between(self, first: float, last: float) -> RecordedTime:
        with RingArchive(self.folder) as archive:
            return archive.between(_ns(first), _ns(last))


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def _ns(minute: float) -> int:
    return round((START_S + minute * MINUTE) * NS)


def of(time: RecordedTime, service: str) -> TimeWatched:
    processes = [
        process
        for process in time.processes.values()
        if process.process.identity.service == service
    ]
    return coverage(time, processes)


def minutes(gaps: list[Gap] | tuple[Gap, ...]) -> list[tuple[float, float, str]]:
    return [
        (
            round((gap.begun_ns / NS - START_S) / MINUTE, 2),
            round((gap.until_ns / NS - START_S) / MINUTE, 2),
            gap.reason,
        )
        for gap in gaps
    ]


def test_a_time_that_was_watched_has_no_gap(history: History) -> None:
    history.record(0, 10)
    found = of(history.between(2, 8), "shop")
    assert (found.share, found.gaps, found.absent) == (1.0, [], [])
    assert found.watched_ns == found.process_ns == 6 * MINUTE * NS


def test_when_the_agent_did_not_run_that_is_the_reason(history: History) -> None:
    history.record(0, 5)
    history.restart(8)
    history.record(8, 10)
    found = of(history.between(0, 10), "shop")
    assert minutes(list(found.gaps)) == [(5, 8, "the agent did not run")]
    assert found.share == pytest.approx(0.7)


def test_a_service_that_did_not_run_is_distinguished_from_one_that_was_not_watched(
    history: History,
) -> None:
    history.record(0, 5)
    history.writer.note_ended(42, boottime_of(START_S - 3600), START_S + 5 * MINUTE)
    history.idle(12)
    found = of(history.between(0, 10), "shop")
    assert found.gaps == []
    assert found.absent == [(_ns(5), _ns(10))]
    assert found.share == 1.0


def test_a_pause_has_the_reason_that_was_noted(history: History) -> None:
    history.record(0, 4)
    for minute in (4, 5):
        at_s = START_S + minute * MINUTE
        history.clock.now_s = at_s + MINUTE
        history.writer.note_unrecorded(
            SHOP, 42, boottime_of(START_S - 3600), "shop", at_s, at_s + MINUTE, "no budget was left"
        )
    history.record(7, 9)
    found = of(history.between(0, 9), "shop")
    assert minutes(list(found.gaps)) == [
        (4, 6, "not recorded: no budget was left"),
        (6, 7, "it ran, but was not recorded"),
    ]


def test_a_process_that_was_never_recorded_is_there_with_its_reason(history: History) -> None:
    history.record(0, 3)
    history.writer.note_unrecorded(
        API, 7, boottime_of(START_S), "api", START_S, START_S + 3 * MINUTE, "Go 1.17 is too old"
    )
    found = of(history.between(0, 3), "api")
    assert minutes(list(found.gaps)) == [(0, 3, "not recorded: Go 1.17 is too old")]
    assert (found.share, found.watched_ns) == (0.0, 0)


def test_two_processes_of_a_service_watch_for_each_other(history: History) -> None:
    history.record(0, 5)
    history.record(3, 8, pid=43, began_s=START_S + 3 * MINUTE)
    found = of(history.between(0, 8), "shop")
    assert found.gaps == []
    assert found.watched_ns == 8 * MINUTE * NS
    assert found.process_ns == 10 * MINUTE * NS


def test_of_one_process_only_its_own_life_counts(history: History) -> None:
    history.record(4, 6, pid=43, began_s=START_S + 4 * MINUTE)
    history.writer.note_ended(43, boottime_of(START_S + 4 * MINUTE), START_S + 6 * MINUTE)
    history.restart(20)
    time = history.between(0, 30)
    (process,) = time.processes.values()
    found = coverage_of_one(time, process)
    assert (found.share, found.gaps) == (1.0, [])
    assert of(time, "shop").share < 0.5


def test_the_window_that_the_agent_still_records_is_not_a_loss(tmp_path: Path) -> None:
    now_s = clock.time()
    at = Clock(now_s - 100)
    with ring(tmp_path, at) as writer:
        assert writer.write(window(now_s - 100))
        at.now_s = now_s - 5
        writer.beat()
        with RingArchive(tmp_path) as archive:
            now_ns = clock.time_ns()
            found = archive.between(round((now_s - 100) * NS), now_ns)
            later = archive.between(round((now_s + 86000) * NS), round((now_s + 86400) * NS))
    assert agent_gaps(found) == []
    (gap,) = coverage(found, list(found.processes.values())).gaps
    assert gap.reason == "the window of that time is not written yet"
    assert [gap.reason for gap in agent_gaps(later)] == ["the agent did not run"]


def test_the_window_that_a_killed_agent_did_not_write_has_its_reason(history: History) -> None:
    history.record(0, 3)
    history.clock.now_s += 40
    history.writer.beat()
    history.restart(10)
    history.record(10, 12)
    found = of(history.between(0, 12), "shop")
    assert minutes(list(found.gaps)) == [
        (3, 3.67, "the agent ended before it wrote that window"),
        (3.67, 10, "the agent did not run"),
    ]


def test_a_rebuilt_index_says_that_it_infers_when_the_agent_ran(history: History) -> None:
    history.record(0, 2)
    history.record(4, 5)
    history.writer.close()
    for each in history.folder.glob("index*"):
        each.unlink()
    found = history.between(0, 5)
    assert minutes(agent_gaps(found)) == [(2, 4, "no agent ran, according to its files")]


def test_an_agent_that_ended_long_ago_does_not_run_any_more(history: History) -> None:
    history.record(0, 2)
    found = history.between(0, 5)
    assert minutes(agent_gaps(found)) == [(2, 5, "the agent did not run")]


def test_less_than_a_second_between_two_windows_is_not_a_gap(history: History) -> None:
    for number in range(3):
        at_s = START_S + number * (MINUTE + 0.9)
        history.clock.now_s = at_s + MINUTE
        assert history.writer.write(window(at_s))
    found = of(history.between(0, 3), "shop")
    assert not found.gaps
    assert not found.absent
    assert found.share > 0.98


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        (110, "the agent ended before it wrote that window"),
        (130, "it ran, but was not recorded"),
    ],
)
def test_a_window_is_not_written_for_up_to_two_of_its_lengths(
    history: History, seconds: int, reason: str
) -> None:
    history.record(0, 3)
    history.clock.now_s += seconds
    history.writer.beat()
    history.restart(10)
    found = of(history.between(0, 8), "shop")
    assert minutes(list(found.gaps)) == [
        (3, round(3 + seconds / MINUTE, 2), reason),
        (round(3 + seconds / MINUTE, 2), 8, "the agent did not run"),
    ]
