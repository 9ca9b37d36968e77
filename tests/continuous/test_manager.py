"""The processes that are recorded: how windows end, and what becomes of processes that end."""

from __future__ import annotations

import asyncio

import pytest

from ebpfprof.continuous import manager as manager_module
from ebpfprof.errors import (
    AttachFailed,
    EbpfprofError,
    NoSuchProcess,
    NotGoProgram,
    TargetGone,
    UnsupportedTarget,
)
from ebpfprof.process.process import TargetEnd
from tests.continuous.fakes import ALL_KINDS, PID, FakeLive, FakeTarget, go_process, made, managed
from tests.continuous.loops import never, run, until


def test_waiting_ends_with_the_event_the_process_or_the_manager() -> None:
    async def work() -> None:
        manager, process, _ = made()
        event = asyncio.Event()
        first = asyncio.ensure_future(manager.wait(process, 1e300, event.wait()))
        await asyncio.sleep(0)
        event.set()
        assert not await first
        assert await manager.wait(process, 0, never())
        other = asyncio.ensure_future(manager.wait(process, 600, never()))
        await asyncio.sleep(0)
        manager.note_ending(process, "process 1 ended")
        assert await other
        another, process, _ = made()
        third = asyncio.ensure_future(another.wait(process, 600))
        await asyncio.sleep(0)
        await another.stop()
        assert await third

    run(work())


def test_a_window_ends_at_each_interval() -> None:
    async def work() -> None:
        manager, process, target = made(interval_s=0.01, continuous=True)
        running = asyncio.ensure_future(manager.run())
        await until(lambda: target.users == 1)
        target.work(2)

        # Two, and the one that there is from the start.
        await until(lambda: process.history.totals.get("cpu", [0])[0] == 3)
        await until(lambda: len(process.history.windows) >= 5)
        await manager.stop()
        await running
        counts = [
            sum(sample.values[0] for sample in window.profiles["block"].samples)
            for window in process.history.windows
        ]
        assert sum(counts) == 3  # two, and the one that there is from the start
        assert all(
            a.end_s == b.start_s
            for a, b in zip(
                list(process.history.windows)[:-1], list(process.history.windows)[1:], strict=True
            )
        )

    run(work())


def test_an_ended_process_keeps_its_history_for_a_while() -> None:
    async def work() -> None:
        manager, process, target = made(interval_s=0.01, retention_s=0.05, continuous=True)
        running = asyncio.ensure_future(manager.run())
        await until(lambda: target.users == 1)
        target.work(4)
        target.ending = TargetEnd("process 7 ended")
        await process.ended.wait()
        assert process.ending == "process 7 ended"
        assert not process.is_recording
        assert process.history.totals["block"][0] == 5
        with pytest.raises(TargetGone, match="process 7 ended"):
            async with manager.leases.recording(process):
                pass
        await until(lambda: target.is_removed)
        await until(lambda: not process.history.windows)
        assert manager.find(PID) is process  # it was named
        await manager.stop()
        await running

    run(work())


def test_the_last_ended_processes_with_a_history_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many come and go: what is held follows what is alive."""
    monkeypatch.setattr(manager_module, "MAX_ENDED", 2)

    async def work() -> None:
        live = FakeLive()
        manager = managed(live)
        running = asyncio.ensure_future(manager.run())
        named = manager.add_opened(FakeTarget(PID))
        manager.note_ending(named, "it went")
        for pid in range(1, 61):
            found = manager.add_found(go_process(pid))
            if pid % 12 == 0:  # it is recorded meanwhile
                live.targets[pid] = FakeTarget(pid)
                async with manager.leases.recording(found):
                    assert await manager.readings.snapshot(found, "block")
            if pid == 7:  # somebody else has something of it
                manager.kept.add(found)
            manager.note_ending(found, f"process {pid} ended")
        await until(lambda: len(manager.processes) == 4)
        assert [process.pid for process in manager.processes] == [7, 48, 60, PID]
        manager.kept.clear()
        await until(lambda: len(manager.processes) == 3)
        assert [each.pid for each in manager.processes] == [48, 60, PID]
        assert all(target.is_removed for target in live.targets.values())
        for each in manager.processes[:2]:
            assert each.history.windows
            assert (each.history.sums, each.target, each.last_read) == ({}, None, {})
        await manager.stop()
        await running

    run(work())


def test_a_found_process_is_opened_by_its_first_user() -> None:
    async def work() -> None:
        target = FakeTarget(PID, name="opened")
        manager = managed(FakeLive({PID: target}), interval_s=0.01)
        process = manager.add_found(go_process(PID))
        assert (process.target, process.kinds, process.name) == (None, ALL_KINDS, "shop")
        async with manager.leases.recording(process):
            assert (process.target, process.name) == (target, "opened")

    run(work())


@pytest.mark.parametrize(
    "refusal",
    [
        NoSuchProcess("It ended."),
        UnsupportedTarget("It is a zombie."),
        NotGoProgram("It is a shell."),
        TargetGone("It has just become something else."),
        None,
    ],
)
def test_a_found_process_that_ran_another_program_has_ended(
    refusal: EbpfprofError | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended, or has become another program, between the survey and the first request."""

    async def work() -> None:
        shell = FakeTarget(PID, kinds=("cpu",), go_version=None)
        live = FakeLive({PID: shell}, refusal=refusal)
        manager = managed(live)
        for _ in range(2):
            process = manager.add_found(go_process(PID))
            with pytest.raises(TargetGone):
                async with manager.leases.recording(process):
                    pass
            assert process.ending == f"process {PID} ended or replaced itself by another program"
            manager.leases.lease(process, 60)
        other = manager.add_found(go_process(PID))
        manager.leases.lease(other, 60)
        await until(lambda: other.ending is not None and not other.is_leased)
        assert other.problem is None
        await manager.stop()
        assert (process.users, shell.starts, shell.is_removed) == (0, 0, refusal is None)

    run(work())
    assert capsys.readouterr().err == ""


def test_a_problem_is_reported_once_and_recording_retried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        live = FakeLive({PID: target}, refusal=AttachFailed("There is no room."))
        manager = managed(live, interval_s=0.01, continuous=True)
        running = asyncio.ensure_future(manager.run())
        manager.add_found(go_process(PID))
        await until(lambda: live.adds >= 3)
        live.refusal = None
        await until(lambda: target.users == 1)
        await manager.stop()
        await running

    run(work())
    assert capsys.readouterr().err == "ebpfprof: There is no room.\n"


def test_the_first_window_is_not_cut_short() -> None:
    """It may have begun just before the others end: steps of a timeline are of about one length."""

    async def work() -> None:
        target = FakeTarget(PID)
        manager = managed(FakeLive({PID: target}), interval_s=60)
        process = manager.add_opened(target)
        async with manager.leases.recording(process):
            await manager._end_windows()
            assert not process.history.windows
            process.history.begun_s -= 31
            await manager._end_windows()
            assert len(process.history.windows) == 1

    run(work())
