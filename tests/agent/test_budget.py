"""Rounds stay within their bounds: CPU time, memory, how many are recorded and begun at once."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from ebpfprof.agent import rounds as module
from ebpfprof.agent.costs import FIRST, OPENING_S
from ebpfprof.agent.scheduler import BUDGET
from ebpfprof.discovery.processes import GoProcess
from ebpfprof.profile.losses import Loss
from ebpfprof.system.own_usage import OwnUsage, own_usage
from tests.agent.node import RICH, Node
from tests.continuous.loops import run, until


def test_with_too_much_memory_fewer_are_recorded_and_more_again_later(
    three: list[GoProcess],
) -> None:
    async def work() -> None:
        node = Node(*three)
        await node.begin()
        node.rounds.settings = replace(RICH, max_memory=1 << 20)
        await node.turn()
        assert node.rounds.recorded == 2
        assert "The agent uses" in node.said[0]
        assert "2 processes at once" in node.said[0]
        await node.turn()
        await node.turn()
        assert node.rounds.recorded == 1
        assert "1 process at once" in node.said[-1]
        node.rounds.settings = replace(RICH, max_memory=own_usage().memory_bytes * 10)
        await node.turn()
        assert node.rounds.recorded == 3
        assert node.rounds._places == RICH.max_processes

    run(work())


def test_no_more_are_recorded_than_there_is_memory_for(three: list[GoProcess]) -> None:
    """By what those take that are recorded, before it is too much."""

    async def work() -> None:
        node = Node(*three)
        await node.begin()
        rounds = node.rounds
        idle_bytes, each_bytes = rounds._idle_bytes, 4 << 20
        assert idle_bytes > 1 << 20
        used = idle_bytes + 3 * each_bytes
        rounds.figures.usage = OwnUsage(0.0, used)
        for spare, places in ((0, 3), (each_bytes - 1, 3), (each_bytes, 4), (9.5 * each_bytes, 12)):
            rounds.settings = replace(RICH, max_memory=int((used + spare) / module._ROOMY) + 1)
            rounds._fit_memory()
            assert rounds._places == places
        rounds.settings = replace(RICH, max_memory=used + 1)  # beyond the part that is planned with
        rounds._fit_memory()
        assert rounds._places == 3
        assert node.said == []

    run(work())


def test_costs_are_those_of_the_round(shop: GoProcess) -> None:
    async def work() -> None:
        node = Node(shop, settings=replace(RICH, max_node_overhead=0.1))
        rounds = node.rounds
        await node.begin()
        assert rounds._opened == 1
        rounds._opened = 40
        node.live.lost = [Loss("unread", "x", 3), Loss("unread", "x", 4)]
        for round_, (total_ns, expected) in enumerate([(4e9, 0.4), (4e9, 0.0), (6e9, 0.2)]):
            node.live.costs_ns[shop.pid] = total_ns
            usage = own_usage()
            rounds._begun_s, rounds._cpu_s = time.monotonic() - 10, usage.cpu_s - 5
            spent = rounds._spent()
            assert rounds.figures.spent_on_targets == pytest.approx(expected, rel=0.1)
            assert rounds.figures.spent_on_self == pytest.approx(0.5, rel=0.1)
            # What starting takes beyond the income is not counted.
            own = min(0.5, rounds.income) if not round_ else 0.5
            assert spent == pytest.approx(expected + own, rel=0.1)
            rounds.figures.rounds += 1
            assert (rounds._opened, rounds.figures.losses) == (0, {"unread": 7})
            # What opening took (0.2 in this round) is no part of what recording takes.
            expected_each = 0.5 * (0.5 - 0.2 + FIRST) if not round_ else rounds.costs.own_each
            assert rounds.costs.own_each == pytest.approx(expected_each, rel=0.1)
        key = shop.pid, shop.started_ns
        assert rounds.costs.of(key, 10) == pytest.approx(rounds.costs.of(key) + OPENING_S / 10)

    run(work())


def test_more_than_the_budget_is_not_spent(three: list[GoProcess]) -> None:
    async def work() -> None:
        poor = replace(RICH, max_node_overhead=0.1 / (os.cpu_count() or 1), window=10)
        node = Node(*three, settings=poor)
        assert node.rounds.income == pytest.approx(0.001)
        await node.begin()
        assert node.rounds.recorded == 1  # the first has its turn, whatever it costs
        assert set(node.rounds.waiting.values()) == {BUDGET}
        (key,) = node.recorded
        node.live.costs_ns[key[0]] = 1e9
        await node.turn()
        assert node.recorded == {}  # there is a debt, of ten windows
        assert -0.11 < (node.rounds.scheduler.saved or 0) < -0.08
        assert set(node.rounds.waiting.values()) == {BUDGET}

    run(work())


def test_few_are_started_at_a_time_and_all_in_the_end(three: list[GoProcess]) -> None:
    async def work() -> None:
        node = Node(*three)
        node.live.gate.clear()
        node.rounds.begin()
        assert (node.rounds.recorded, node.rounds.starting) == (0, 3)
        await until(lambda: len(node.live.opened) == 2)
        node.rounds.start_some()
        await node.rounds.settle()
        assert len(node.recorded) == 2
        assert node.rounds.starting == 3
        node.live.gate.set()
        await node.settled()
        assert (node.rounds.recorded, node.rounds.starting) == (3, 0)

    run(work())


@pytest.mark.parametrize(
    ("begun_s", "window_s", "is_growing", "lasts_s"),
    [
        (600.0, 60, False, 60),
        (620.0, 60, False, 40),
        (630.0, 60, False, 30),
        (640.0, 60, False, 80),
        (659.0, 60, False, 61),
        (600.0, 60, True, 5),
        (603.0, 60, True, 5),
        (600.5, 1, True, 0.5),
        (601.0, 3600, False, 2999),
    ],
)
def test_rounds_end_at_multiples_of_the_window(
    shop: GoProcess, begun_s: float, window_s: float, is_growing: bool, lasts_s: float
) -> None:
    async def work() -> None:
        rounds = Node(shop, settings=replace(RICH, window=window_s)).rounds
        rounds._begun_s, rounds._windows_begun = 7.0, (7.0, begun_s)
        rounds._is_growing = is_growing
        assert rounds.next_turn_s - 7.0 == pytest.approx(lasts_s)

    run(work())


def test_while_it_is_not_known_what_recording_costs_few_more_are_recorded(
    shop: GoProcess,
) -> None:
    async def work() -> None:
        # All but the first can't be opened: it is about who has a turn.
        node = Node(*(replace(shop, started_ns=shop.started_ns + n) for n in range(40)))
        plan = node.rounds._planned(0.0, 1.0)
        assert len(plan) == module.MORE_AT_ONCE
        assert node.rounds._is_growing

    run(work())


def test_when_more_may_begin_those_that_are_recorded_continue(
    three: list[GoProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the others are busier, and have waited; their windows do not end, either."""
    monkeypatch.setattr(module, "GROWTH", 1.0)
    monkeypatch.setattr(module, "MORE_AT_ONCE", 1)

    async def work() -> None:
        node = Node(*three)
        await node.begin()
        (first,) = node.recorded
        for key, member in node.roster.members.items():
            member.busy = float(key != first)
        node.rounds._begun_s -= 5
        await node.rounds.turn()
        await node.settled()
        assert first in node.recorded
        assert len(node.recorded) == 2
        assert not node.windows(first[0])
        assert node.rounds.figures.rounds == 0

    run(work())
