"""A process is recorded while it has users, and no longer."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.continuous.fakes import PID, FakeLive, FakeTarget, go_process, made, managed
from tests.continuous.loops import never, run, until


def test_the_last_of_several_users_stops_the_recording() -> None:
    async def work() -> None:
        manager, process, target = made()
        async with manager.leases.recording(process):
            async with manager.leases.recording(process):
                assert (target.users, target.starts) == (1, 1)
            assert target.users == 1
            target.work(3)
        assert target.users == 0
        (window,) = process.history.windows
        assert window.profiles["block"].samples[0].values[0] == 3

    run(work())


def test_a_lease_ends_after_its_time() -> None:
    async def work() -> None:
        manager, process, target = made()
        running = asyncio.ensure_future(manager.run())
        manager.leases.lease(process, 600)
        await until(lambda: target.users == 1)
        manager.leases.lease(process, 0)  # does not make it shorter
        assert process.leased_until_s > time.monotonic() + 500
        process.leased_until_s = 0
        await until(lambda: target.users == 0)
        manager.leases.lease(process, 600)
        await until(lambda: target.users == 1)
        await manager.stop()
        await running
        assert (target.users, target.starts) == (0, 2)

    run(work())


@pytest.mark.parametrize("moment", ["while it starts", "while it is recorded"])
def test_a_caller_that_is_cancelled_leaves_no_probe(moment: str) -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        live = FakeLive({PID: target})
        manager = managed(live)
        process = manager.add_opened(target)

        async def request() -> None:
            async with manager.leases.recording(process):
                await never()

        if moment == "while it starts":
            live.gate.clear()
        task = asyncio.ensure_future(request())
        await until(lambda: target.begun == 1)
        if moment == "while it is recorded":
            await until(lambda: process.users == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        live.gate.set()
        await until(lambda: target.starts == 1)
        await manager.stop()
        assert (process.users, target.users) == (0, 0)

    run(work())


def test_a_failed_lease_ends_no_other_use() -> None:
    async def work() -> None:
        manager, process, target = made()
        running = asyncio.ensure_future(manager.run())
        async with manager.leases.recording(process):
            async with process.lock:
                manager.leases.lease(process, 600)
                manager.note_ending(process, f"process {PID} ended")
                await asyncio.sleep(0.05)
            await until(lambda: not process.is_leased)
            await asyncio.sleep(0.05)
            assert process.users == 1
        assert process.users == 0
        await until(lambda: target.is_removed)
        await manager.stop()
        await running

    run(work())


def test_an_ended_process_is_closed_after_its_last_user() -> None:
    """Also if another process has reused its pid."""

    async def work() -> None:
        target = FakeTarget(PID)
        live = FakeLive({PID: target})
        manager = managed(live, continuous=True)
        process = manager.add_opened(target)
        await until(lambda: target.users == 1)
        async with manager.leases.recording(process):
            target.work(4)
            manager.note_ending(process, f"process {PID} ended")
            live.targets[PID] = FakeTarget(PID, name="other")
            other = manager.add_found(go_process(PID))
            await until(lambda: other.users == 1)
            assert not target.is_removed
            profile = await manager.readings.snapshot(process, "block")
            assert profile.samples[0].values[0] == 4
        await until(lambda: target.is_removed)
        assert (process.users, process.name) == (0, "shop")
        assert not other.ending
        await manager.stop()

    run(work())
