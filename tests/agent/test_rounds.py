"""Rounds, on a live session without a kernel: each window once, and what becomes of the others."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from ebpfprof.agent import rounds as module
from ebpfprof.agent.roster import FAILED
from ebpfprof.agent.scheduler import PLACES
from ebpfprof.agent.settings_file import parsed
from ebpfprof.discovery.processes import GoProcess
from ebpfprof.errors import CorruptBinary, NotGoProgram
from ebpfprof.process.process import TargetEnd
from ebpfprof.profile.service import ProcessEnd
from tests.agent.node import DROP_DASH, RICH, Node, identifier
from tests.continuous.fakes import ALL_KINDS, FakeTarget
from tests.continuous.loops import run, until


def test_each_event_is_in_one_window(shop: GoProcess) -> None:
    async def work() -> None:
        node = Node(shop)
        await node.begin()
        for seconds in (3, 4):
            node.target(shop.pid).work(seconds)
            await node.turn()
        node.target(shop.pid).work(5)
        await node.end()
        assert node.events(shop.pid) == [3, 4, 5]
        windows = node.windows(shop.pid)
        assert [window.start_s for window in windows[1:]] == [each.end_s for each in windows[:-1]]
        first = windows[0]
        assert (first.identity.service, first.identity.node) == ("dash", "n1")
        assert first.process_start_ns == shop.started_ns
        assert (first.command, first.go_version) == ("shop", "go1.27.3")
        assert (node.rounds.figures.rounds, node.rounds.figures.windows) == (2, 3)

    run(work())


def test_a_process_that_is_recorded_for_long_is_opened_again_without_a_loss(
    shop: GoProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        node = Node(shop)
        await node.begin()
        node.target(shop.pid).work(3)
        await node.turn()
        assert node.live.opened == [shop.pid]
        monkeypatch.setattr(module, "RENEW_S", 0.0)
        node.target(shop.pid).work(4)
        begun = node.target(shop.pid)
        node.live.targets[shop.pid] = FakeTarget(shop.pid, kinds=ALL_KINDS)
        await node.turn()
        await until(lambda: begun.is_removed)
        assert node.live.opened == [shop.pid, shop.pid]
        node.target(shop.pid).work(5)
        await node.end()
        assert node.events(shop.pid) == [3, 4, 5]

    run(work())


def test_few_are_opened_again_at_once_the_oldest_first(
    three: list[GoProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        node = Node(*three)
        await node.begin()
        oldest = node.rounds._recorded[three[1].pid, three[1].started_ns]
        oldest.since_s -= 7
        monkeypatch.setattr(module, "RENEW_S", 0.0)
        monkeypatch.setattr(module, "RENEWED_AT_ONCE", 1)
        await node.turn()
        assert len(node.live.opened) == 4
        assert node.live.opened[3] == three[1].pid

    run(work())


def test_what_is_known_of_a_process_is_checked_at_the_end_of_a_round(shop: GoProcess) -> None:
    async def work() -> None:
        node = Node(shop)
        await node.begin()
        rules = parsed(DROP_DASH, "a").rules
        node.roster._identifier = identifier(replace(RICH, rules=rules))
        await node.survey()
        assert node.rounds.recorded == 1
        await node.turn()
        assert node.recorded == {}

    run(work())


def test_what_the_rules_drop_is_left_at_once(shop: GoProcess) -> None:
    async def work() -> None:
        node = Node(shop)
        await node.begin()
        node.target(shop.pid).work(3)
        settings = replace(RICH, rules=parsed(DROP_DASH, "a").rules)
        node.roster.use(identifier(settings), settings)
        await node.rounds.settle()
        assert node.target(shop.pid).users == 0
        assert node.events(shop.pid) == [3]
        await node.turn()
        assert (node.rounds.recorded, node.rounds.starting) == (0, 0)
        assert node.unwatched(shop.pid) == []  # the settings say so

    run(work())


@pytest.mark.parametrize("change", ["executable", "command"])
def test_one_that_goes_by_another_name_can_still_opt_out(shop: GoProcess, change: str) -> None:
    """Its file was moved, or it changed its own command line."""

    async def work() -> None:
        node = Node(shop)
        await node.begin()
        node.found = [replace(shop, **{change: "/srv/dash"})]  # type: ignore[arg-type]  # any of its fields
        await node.survey()
        assert node.live.opened == [shop.pid]
        settings = replace(RICH, rules=parsed(DROP_DASH, "a").rules)
        node.roster.use(identifier(settings), settings)
        await node.rounds.settle()
        assert node.target(shop.pid).users == 0

    run(work())


@pytest.mark.parametrize(
    "error",
    [
        CorruptBinary("It is broken."),
        NotGoProgram("It is none."),
        IndexError("nobody thought of it"),
    ],
    ids=["corrupt", "not-go", "unexpected"],
)
def test_one_that_can_not_be_opened_holds_up_no_other_and_is_tried_much_later(
    three: list[GoProcess], error: Exception
) -> None:
    async def work() -> None:
        *bad, good = three
        node = Node(*three)
        node.live.refusals = {each.pid: error for each in bad}
        await node.begin()
        for _ in range(3):
            await node.survey()
        await node.turn()
        assert node.rounds.recorded == 1
        node.target(good.pid).work(2)
        await node.end()
        assert node.events(good.pid)[-1] == 2
        for each in bad:
            assert node.live.opened.count(each.pid) == 1
            assert [item.reason for item in node.unwatched(each.pid)] == [FAILED]
            member = node.roster.members[each.pid, each.started_ns]
            assert 50 < member.failed_until_s - time.monotonic() <= 60
            member.fail()
            assert 100 < member.failed_until_s - time.monotonic() <= 120
        assert node.roster.refusals() == {FAILED: 2}

    run(work())


def test_waiting_processes_are_reported_from_their_beginning(three: list[GoProcess]) -> None:
    async def work() -> None:
        node = Node(*three[:2], settings=replace(RICH, max_processes=1))
        begun_s = time.time()
        await node.begin()
        node.rounds._begun_unix_s -= 1000  # none of them is as old as that
        (key,) = node.recorded
        (waits,) = (each for each in three[:2] if each.pid != key[0])
        assert node.rounds.waiting == {(waits.pid, waits.started_ns): PLACES}
        node.join(three[2])
        await node.survey()
        assert len(node.rounds.waiting) == 2
        await node.turn()
        (reported,) = node.unwatched(waits.pid)
        assert reported.reason == PLACES
        assert (
            begun_s - 60
            < reported.start_s
            < begun_s + 0.1
            < reported.end_s + 0.1
            < time.time() + 0.1
        )
        assert node.unwatched(key[0]) == []
        seconds = node.rounds.figures.unwatched_s[PLACES]
        assert 0 < seconds < 200
        # Now another one has its turn.
        assert {*node.recorded} != {key}
        assert len(node.recorded) == 1
        assert node.target(key[0]).users == 0

    run(work())


def test_a_newcomer_begins_in_the_middle_of_a_round(three: list[GoProcess]) -> None:
    async def work() -> None:
        node = Node(three[0])
        await node.begin()
        node.join(three[1])
        await node.survey()
        assert node.rounds.recorded == 2
        node.target(three[1].pid).work(2)
        await node.turn()
        assert node.events(three[1].pid) == [2]

    run(work())


def test_the_end_of_a_process_is_reported_once(shop: GoProcess) -> None:
    async def work() -> None:
        gone = replace(shop, started_ns=shop.started_ns - 1)  # another has its pid now
        node = Node(gone)
        await node.begin()
        node.target(gone.pid).work(3)
        running = asyncio.ensure_future(node.rounds.manager.run())
        node.target(gone.pid).ending = TargetEnd("process 7 ended")
        await until(lambda: all(each.ending for each in node.recorded.values()))
        node.found = []
        await node.survey()
        await node.turn()
        assert node.events(gone.pid) == [3]
        ends = [each for each in node.given if isinstance(each, ProcessEnd)]
        assert [(e.pid, e.process_start_ns) for e in ends] == [(gone.pid, gone.started_ns)]
        assert 0 <= time.time() - ends[0].end_s < 60
        assert node.recorded == {}
        # Nothing is kept of it.
        await until(lambda: not node.rounds.manager.processes)
        await node.survey()
        assert not node.rounds._handover._members
        assert not node.rounds.costs._of_targets
        await node.end()
        await running

    run(work())


def test_metrics_can_be_read_while_recordings_begin(shop: GoProcess) -> None:
    async def work() -> None:
        node = Node(shop)
        await node.begin()
        recorded = node.rounds._recorded

        class Slow:
            @property
            def is_recording(self) -> bool:
                recorded[len(recorded), 0] = recorded[shop.pid, shop.started_ns]
                return True

        recorded[0, 0] = replace(recorded[shop.pid, shop.started_ns], process=cast("Any", Slow()))
        assert node.rounds.recorded == 2

    run(work())
