"""Continuous recording by itself, without a server: a real Go program, real probes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ebpfprof.continuous.follow import Follower
from ebpfprof.continuous.leases import FOREVER
from ebpfprof.continuous.manager import Manager
from ebpfprof.continuous.process import RecordedProcess
from ebpfprof.discovery.processes import ProcessTable
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from tests.continuous.fakes import ALL_KINDS
from tests.continuous.loops import run, until
from tests.kernel.kernel_state import has_probes
from tests.kernel.live_counts import HANDS, count_in
from tests.kernel.programs import program
from tests.targets_run import Target

ALWAYS = (0.0, float("inf"))


@pytest.fixture(scope="module")
def live() -> Iterator[LiveSession]:
    with LiveSession(Options(kinds=ALL_KINDS), capacity=4) as session:
        yield session


@pytest.fixture
def steps() -> Iterator[Target]:
    with Target.start(program("steps")) as target:
        yield target


async def hand(steps: Target) -> None:
    """Have the program block as often as HANDS says."""
    await asyncio.to_thread(steps.ask, "hand", "done")


def windows(process: RecordedProcess) -> list[int]:
    recorded = process.history.between("block", *ALWAYS)
    counts = [count_in(window.profiles["block"], "main.hand") for window in recorded]
    return [count for count in counts if count]


def test_a_process_is_recorded_while_it_has_users(live: LiveSession, steps: Target) -> None:
    async def work() -> None:
        manager = Manager(live, kinds=ALL_KINDS, interval_s=3600)
        process = manager.add_opened(live.add(steps.pid))
        assert not has_probes(steps.pid)
        async with manager.leases.recording(process):
            assert has_probes(steps.pid)
            blocked = await manager.readings.begin(process, "block")
            burnt = await manager.readings.begin(process, "cpu")
            await hand(steps)
            await asyncio.to_thread(steps.ask, "burn", "done")
            assert count_in(await blocked(), "main.hand") == HANDS
            assert count_in(await burnt(), "main.burn") > 0
            await manager.readings.end_window(process)
            await hand(steps)
            assert count_in(await manager.readings.snapshot(process, "block"), "main.hand") == (
                2 * HANDS
            )
        assert not has_probes(steps.pid)
        await hand(steps)
        assert windows(process) == [HANDS, HANDS]
        whole = await manager.readings.between(process, "block", *ALWAYS)
        assert count_in(whole, "main.hand") == 2 * HANDS
        await manager.stop()

    run(work())


def test_a_lease_records_until_the_process_ends(live: LiveSession, steps: Target) -> None:
    async def work() -> None:
        manager = Manager(live, kinds=ALL_KINDS, interval_s=0.05)
        process = manager.add_opened(live.add(steps.pid))
        running = asyncio.ensure_future(manager.run())
        manager.leases.lease(process, FOREVER)
        await until(lambda: process.is_recording)
        await hand(steps)
        await until(lambda: sum(windows(process)) == HANDS)
        steps.close_input()
        await process.ended.wait()
        assert process.ending == f"process {steps.pid} ended"
        await until(lambda: process.is_closed)
        assert sum(windows(process)) == HANDS
        await manager.stop()
        await running

    run(work())


def test_a_surveyed_process_is_opened_by_its_first_recording(
    live: LiveSession, steps: Target
) -> None:
    async def work() -> None:
        with ProcessTable() as table:
            manager = Manager(live, kinds=ALL_KINDS)
            follower = Follower(manager, table, follows=True, capacity=10_000)
            await follower.survey()
            process = manager.find(steps.pid)
            assert process is not None
            assert (process.name, process.target) == ("steps", None)
            async with manager.leases.recording(process):
                await hand(steps)
            assert windows(process) == [HANDS]
            await manager.stop()

    run(work())
